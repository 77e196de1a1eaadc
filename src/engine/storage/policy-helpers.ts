import { STORAGE_OWNER } from './names.ts'

/**
 * Upsert clause for `storage.objects AS o`. A caller without a user id does not change the owner: otherwise the owner's
 * policies would no longer match the object.
 */
export const REPLACE_OBJECT = `ON CONFLICT (bucket_id, name) DO UPDATE SET version = excluded.version,
  owner = CASE WHEN excluded.owner_id IS NULL THEN o.owner ELSE excluded.owner END,
  owner_id = coalesce(excluded.owner_id, o.owner_id), metadata = excluded.metadata, user_metadata = excluded.user_metadata`

/** SQL functions for policies and the storage server's checks. They run as the caller, so they give no extra access. */
export function policyHelpers(): string[] {
  return HELPERS.flatMap(([signature, rest]) => helper(signature, rest))
}

function helper(signature: string, rest: string): string[] {
  return [
    `CREATE OR REPLACE FUNCTION storage.${signature} ${rest}`,
    `ALTER FUNCTION storage.${signature} OWNER TO ${STORAGE_OWNER}`,
  ]
}

const HELPERS: readonly (readonly [string, string])[] = [
  [
    'foldername(name text)',
    // trim_array fails on the empty array of an empty name.
    `RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
     RETURN trim_array(string_to_array(CASE name WHEN '' THEN '-' ELSE name END, '/'), 1)`,
  ],
  ['filename(name text)', `RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN split_part(name, '/', -1)`],
  [
    'extension(name text)',
    `RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN coalesce(substring(name FROM '\\.([^./]*)$'), '')`,
  ],
  [
    'operation()',
    `RETURNS text LANGUAGE sql STABLE PARALLEL SAFE RETURN nullif(current_setting('storage.operation', true), '')`,
  ],
  [
    'allow_only_operation(expected text)',
    `RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
     RETURN coalesce(regexp_replace(storage.operation(), '^storage\\.', '') = regexp_replace(expected, '^storage\\.', ''), false)`,
  ],
  [
    'allow_any_operation(expected text[])',
    `RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
     RETURN coalesce((SELECT bool_or(storage.allow_only_operation(each)) FROM unnest(expected) AS each), false)`,
  ],
  ['can_write(uuid, text, text, text, uuid, text, jsonb, jsonb, boolean)', canWrite()],
]

/**
 * Tests whether the caller's policies allow an upload, and rolls it back. Parameters: id, bucket, name, version, owner, owner
 * id, metadata, user metadata, whether to replace an existing object.
 */
function canWrite(): string {
  const insert = `INSERT INTO storage.objects AS o (id, bucket_id, name, version, owner, owner_id, metadata, user_metadata)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
  return `RETURNS text LANGUAGE plpgsql AS $$
    DECLARE broken text;
    BEGIN
      IF $9 THEN
        ${insert} ${REPLACE_OBJECT};
      ELSE
        ${insert};
      END IF;
      RAISE SQLSTATE 'PH000';
    EXCEPTION
      WHEN SQLSTATE 'PH000' THEN RETURN 'ok';
      WHEN unique_violation THEN
        GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
        IF broken = 'bucketid_objname' THEN RETURN 'exists'; END IF;
        RAISE;
    END $$`
}

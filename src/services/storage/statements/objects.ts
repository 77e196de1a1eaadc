import type { Statement } from '../../../engine/engine.ts'
import { REPLACE_OBJECT } from '../../../engine/storage/policy-helpers.ts'
import { RULES } from './buckets.ts'
import { type Columns, type NewObject, OBJECT, type ObjectRow, type Place } from './object-rows.ts'
import { uuidOrNull } from './values.ts'

/**
 * *Server.* One `FoundObject`, or none if the bucket does not exist. With `onlyPublic`, it contains the object only if the bucket is public.
 * A later `visibleObjectIfPrivate` in the transaction then reads the object only if the bucket is private.
 */
export function readObject(
  { bucketId, name }: Place,
  { columns = OBJECT, onlyPublic = false }: { columns?: Columns; onlyPublic?: boolean } = {},
): Statement {
  return {
    text: `SELECT ${onlyPublic ? `set_config('storage.bucket_is_public', b.public::text, true),` : ''} (SELECT to_jsonb(rules) FROM (SELECT ${RULES}) AS rules) AS bucket,
        CASE WHEN o.id IS NOT NULL THEN (SELECT to_jsonb(object) FROM (SELECT ${columns}) AS object) END AS object
      FROM storage.buckets AS b
      LEFT JOIN storage.objects AS o ON o.bucket_id = b.id AND o.name = $2::text${onlyPublic ? ' AND b.public' : ''}
     WHERE b.id = $1::text`,
    params: [bucketId, name],
  }
}

/** The `ObjectRow`, or none if it does not exist or is not visible. */
export function visibleObject({ bucketId, name }: Place, columns: Columns = OBJECT): Statement {
  return {
    text: `SELECT ${columns} FROM storage.objects AS o WHERE o.bucket_id = $1::text AND o.name = $2::text`,
    params: [bucketId, name],
  }
}

/** Like `visibleObject`, but evaluates no policies in a public bucket. */
export function visibleObjectIfPrivate(place: Place, columns: Columns = OBJECT): Statement {
  const { text, params } = visibleObject(place, columns)
  return { text: `${text} AND current_setting('storage.bucket_is_public', true) IS DISTINCT FROM 'true'`, params }
}

/** Rows `{ name }` for those of the names that are visible to the caller. */
export function visibleNames(bucketId: string, names: readonly string[]): Statement {
  return {
    text: `SELECT name FROM storage.objects WHERE bucket_id = $1::text AND name = ANY ($2::text[])`,
    params: [bucketId, names],
  }
}

/** One row, `{ outcome: 'ok' | 'exists' }`; fails if a policy refuses. Writes nothing. */
export function canWrite(object: NewObject, { upsert }: { upsert: boolean }): Statement {
  return {
    text: `SELECT storage.can_write($1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::jsonb, $8::jsonb, $9::boolean)
      AS outcome`,
    params: [...objectParams(object), upsert],
  }
}

const NEW_OBJECT = `(id, bucket_id, name, version, owner, owner_id, metadata, user_metadata)
  VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::jsonb, $8::jsonb)`

function objectParams({ id, bucketId, name, version, ownerId, metadata, userMetadata }: NewObject): unknown[] {
  return [id, bucketId, name, version, uuidOrNull(ownerId), ownerId, JSON.stringify(metadata), userMetadata]
}

/**
 * One `ObjectRow`, or none if a trigger skipped it; fails with 23505 if the name is taken. Requires only the permission to insert,
 * not to select the new row.
 */
export function insertObject(object: NewObject): Statement {
  return {
    text: `WITH written AS (INSERT INTO storage.objects ${NEW_OBJECT} RETURNING 1)
      SELECT ${OBJECT} FROM written, (SELECT $1::uuid AS id, $2::text AS bucket_id, $3::text AS name, $4::text AS version,
        $5::uuid AS owner, $6::text AS owner_id, $7::jsonb AS metadata, $8::jsonb AS user_metadata,
        now() AS created_at, now() AS updated_at, now() AS last_accessed_at) AS o`,
    params: objectParams(object),
  }
}

/** One `ObjectRow`, or none if a trigger skipped it. */
export function upsertObject(object: NewObject): Statement {
  return {
    text: `INSERT INTO storage.objects AS o ${NEW_OBJECT}
      ${REPLACE_OBJECT}
      RETURNING ${OBJECT}`,
    params: objectParams(object),
  }
}

/**
 * The moved `ObjectRow`, or none if the object does not exist, is not visible, may not be changed or has another version than `only`.
 * Fails with 23505 if the target exists. `lastModified` becomes `at`, so that it is later than that of any earlier object at the target.
 */
export function moveObject(
  from: Place,
  to: Place,
  { at, only }: { at: Date; only?: Pick<ObjectRow, 'version'> | undefined },
): Statement {
  const isSource = `o.bucket_id = $1::text AND o.name = $2::text AND (NOT $5::boolean OR o.version IS NOT DISTINCT FROM $6::text)`
  const isSamePlace = `($1::text, $2::text) = ($3::text, $4::text)`
  return {
    text: `WITH moved AS (
        UPDATE storage.objects AS o SET bucket_id = $3::text, name = $4::text,
            metadata = CASE WHEN metadata ? 'lastModified' THEN metadata || jsonb_build_object('lastModified', $7::text) ELSE metadata END
          WHERE ${isSource} AND NOT ${isSamePlace} RETURNING ${OBJECT})
      SELECT * FROM moved UNION ALL SELECT ${OBJECT} FROM storage.objects AS o WHERE ${isSource} AND ${isSamePlace}`,
    params: [
      from.bucketId,
      from.name,
      to.bucketId,
      to.name,
      only !== undefined,
      only?.version ?? null,
      at.toISOString(),
    ],
  }
}

/**
 * Deletes the named objects that the caller may see and delete; returns their `ObjectRow`s. If `versions` has a version at the index of a
 * name, the object is deleted only if it has that version.
 */
export function deleteObjects(
  bucketId: string,
  names: readonly string[],
  versions: readonly (string | null)[] = [],
): Statement {
  return {
    text: `DELETE FROM storage.objects AS o USING unnest($2::text[], $3::text[]) AS wanted (name, version)
      WHERE o.bucket_id = $1::text AND o.name = wanted.name
        AND (wanted.version IS NULL OR o.version = wanted.version) RETURNING ${OBJECT}`,
    params: [bucketId, names, versions],
  }
}

/** *Server.* One row, `{ count }`, which stops counting at `countMax + 1`. */
export function countObjects(bucketId: string, countMax: number): Statement {
  return {
    text: `SELECT count(*)::float8 AS count
      FROM (SELECT FROM storage.objects WHERE bucket_id = $1::text LIMIT $2::bigint + 1) AS counted`,
    params: [bucketId, countMax],
  }
}

/** *Server.* Deletes at most `countMax` objects of a bucket. One row, `{ count }`. */
export function emptyBucket(bucketId: string, countMax: number): Statement {
  return {
    text: `WITH gone AS (
        DELETE FROM storage.objects WHERE bucket_id = $1::text AND name = ANY (
          ARRAY(SELECT name FROM storage.objects WHERE bucket_id = $1::text ORDER BY name LIMIT $2::bigint)) RETURNING 1)
      SELECT count(*)::float8 AS count FROM gone`,
    params: [bucketId, countMax],
  }
}

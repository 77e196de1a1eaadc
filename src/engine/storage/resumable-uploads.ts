import { INTERNAL_SCHEMA, STORAGE_OWNER } from './names.ts'

/**
 * SQL for the tables of resumable uploads. The `received` bytes are in the parts of the multipart upload `upload_id` plus a
 * tail of `tail_bytes` bytes. The request that is sending holds the `lease`; `next_part` is the next unused part number.
 */
export function resumableUploads(server: string): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${INTERNAL_SCHEMA}.resumable_uploads (
       id uuid PRIMARY KEY, bucket_id text NOT NULL, name text NOT NULL, role text, owner_id text, upsert boolean NOT NULL,
       description text NOT NULL, metadata text NOT NULL, token_id uuid, token_expires_at timestamptz,
       size bigint, size_max bigint NOT NULL, part_bytes int NOT NULL, received bigint NOT NULL DEFAULT 0,
       upload_id text, tail uuid, tail_bytes int NOT NULL DEFAULT 0, next_part int NOT NULL DEFAULT 1, lease uuid,
       ended boolean NOT NULL DEFAULT false, expires_at timestamptz NOT NULL)`,
    `CREATE INDEX IF NOT EXISTS resumable_uploads_expires ON ${INTERNAL_SCHEMA}.resumable_uploads (expires_at)`,
    `CREATE TABLE IF NOT EXISTS ${INTERNAL_SCHEMA}.resumable_parts (
       upload uuid REFERENCES ${INTERNAL_SCHEMA}.resumable_uploads ON DELETE CASCADE, n int, etag text NOT NULL, PRIMARY KEY (upload, n))`,
    ...[`${INTERNAL_SCHEMA}.resumable_uploads`, `${INTERNAL_SCHEMA}.resumable_parts`].flatMap((table) => [
      `ALTER TABLE ${table} OWNER TO ${STORAGE_OWNER}`,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ${table} TO ${server}`,
    ]),
  ]
}

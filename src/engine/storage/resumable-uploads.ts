import { STORAGE_GROUP, STORAGE_OWNER } from './names.ts'

/**
 * Uploads that come in several requests. `received` bytes are in parts of the bucket's upload `upload_id` and in `tail_bytes` bytes of their own;
 * who sends now has the `lease`, and `next_part` is a number that nobody else's part has.
 */
export function resumableUploads(): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS storage.resumable_uploads (
       id uuid PRIMARY KEY, bucket_id text NOT NULL, name text NOT NULL, role text, owner_id text, upsert boolean NOT NULL,
       description text NOT NULL, metadata text NOT NULL, token_id uuid, token_expires_at timestamptz,
       size bigint, size_max bigint NOT NULL, part_bytes int NOT NULL, received bigint NOT NULL DEFAULT 0,
       upload_id text, tail uuid, tail_bytes int NOT NULL DEFAULT 0, next_part int NOT NULL DEFAULT 1, lease uuid,
       ended boolean NOT NULL DEFAULT false, expires_at timestamptz NOT NULL)`,
    'CREATE INDEX IF NOT EXISTS resumable_uploads_expires ON storage.resumable_uploads (expires_at)',
    `CREATE TABLE IF NOT EXISTS storage.resumable_parts (
       upload uuid REFERENCES storage.resumable_uploads ON DELETE CASCADE, n int, etag text NOT NULL, PRIMARY KEY (upload, n))`,
    ...['storage.resumable_uploads', 'storage.resumable_parts'].flatMap((table) => [
      `ALTER TABLE ${table} OWNER TO ${STORAGE_OWNER}`,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ${table} TO ${STORAGE_GROUP}`,
    ]),
  ]
}

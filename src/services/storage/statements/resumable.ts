import type { Statement } from '../../../engine/engine.ts'
import { time } from './values.ts'

/** An upload that comes in several requests, as far as it has come. */
export interface Upload {
  /** Of its bytes too: their version. */
  id: string
  bucket_id: string
  name: string
  /** Whose it is; null for a signed one, which its token permits. */
  role: string | null
  owner_id: string | null
  upsert: boolean
  /** JSON of a `Description`. */
  description: string
  /** `Upload-Metadata` as it came. */
  metadata: string
  token_id: string | null
  token_expires_at: string | null
  /** Null until the client knows it. */
  size: number | null
  size_max: number
  part_bytes: number
  received: number
  /** The bucket's; null before the first part. */
  upload_id: string | null
  /** The version of bytes behind the parts that do not fill one. */
  tail: string | null
  tail_bytes: number
  next_part: number
  /** The object has its row. */
  ended: boolean
  /** By a request that has not come to its end, as far as is known. */
  taken: boolean
  expires_at: string
}

const UPLOAD = `u.id, u.bucket_id, u.name, u.role, u.owner_id, u.upsert, u.description, u.metadata, u.token_id,
  ${time('u.token_expires_at')} AS token_expires_at, u.size::float8, u.size_max::float8, u.part_bytes, u.received::float8,
  u.upload_id, u.tail, u.tail_bytes, u.next_part, u.ended, u.lease IS NOT NULL AND NOT u.ended AS taken,
  ${time('u.expires_at')} AS expires_at`

type NewUpload = Pick<
  Upload,
  | 'id'
  | 'bucket_id'
  | 'name'
  | 'role'
  | 'owner_id'
  | 'upsert'
  | 'description'
  | 'metadata'
  | 'token_id'
  | 'token_expires_at'
  | 'size'
  | 'size_max'
  | 'part_bytes'
  | 'expires_at'
> & { lease: string | null }

/** *Server.* The `Upload`; with a lease where bytes come with its beginning. */
export function insertUpload(upload: NewUpload): Statement {
  const columns = Object.keys(upload).join(', ')
  return {
    text: `INSERT INTO storage.resumable_uploads AS u (${columns})
      SELECT ${columns} FROM jsonb_populate_record(NULL::storage.resumable_uploads, $1::jsonb) RETURNING ${UPLOAD}`,
    params: [JSON.stringify(upload)],
  }
}

/** *Server.* The `Upload`, or no row: none, or one whose time is over. */
export function findUpload(id: string, now: Date): Statement {
  return {
    text: `SELECT ${UPLOAD} FROM storage.resumable_uploads AS u WHERE u.id = $1::uuid AND u.expires_at > $2::timestamptz`,
    params: [id, now.toISOString()],
  }
}

interface Taken {
  id: string
  lease: string
  /** No row where it has come further, or not so far, or to its end. */
  offset: number
  /** Of the whole, if this request is the first to tell. */
  size: number | null
}

/**
 * *Server.* The `Upload`. Whoever sent before and has not come to his end can note nothing more, and no part of his has the number of a later one.
 */
export function takeUpload({ id, lease, offset, size }: Taken): Statement {
  return {
    text: `UPDATE storage.resumable_uploads AS u
         SET lease = $2::uuid, next_part = next_part + (lease IS NOT NULL)::int, size = coalesce(size, $4::bigint)
       WHERE u.id = $1::uuid AND u.received = $3::bigint AND NOT u.ended RETURNING ${UPLOAD}`,
    params: [id, lease, offset, size],
  }
}

interface Held {
  id: string
  lease: string
}

interface NotedPart {
  n: number
  etag: string
  uploadId: string
  received: number
  /** Nothing more comes in this request. */
  isEnd: boolean
}

/** *Server.* One row, `{ next_part }`, or none where somebody else has taken the upload. */
export function notePart(held: Held, part: NotedPart): Statement {
  return {
    text: `WITH mine AS (
        UPDATE storage.resumable_uploads
           SET received = $6::bigint, upload_id = $5::text, tail = NULL, tail_bytes = 0, next_part = next_part + 1,
               lease = CASE WHEN NOT $7::boolean THEN lease END
         WHERE id = $1::uuid AND lease = $2::uuid RETURNING id, next_part
      ), part AS (
        INSERT INTO storage.resumable_parts (upload, n, etag) SELECT id, $3::int, $4::text FROM mine
      )
      SELECT next_part FROM mine`,
    params: [held.id, held.lease, part.n, part.etag, part.uploadId, part.received, part.isEnd],
  }
}

/** *Server.* The end of a request. One row, or none where somebody else has taken the upload. */
export function noteTail(held: Held, tail: { version: string; bytes: number; received: number }): Statement {
  return {
    text: `UPDATE storage.resumable_uploads SET received = $5::bigint, tail = $3::uuid, tail_bytes = $4::int, lease = NULL
      WHERE id = $1::uuid AND lease = $2::uuid RETURNING id`,
    params: [held.id, held.lease, tail.version, tail.bytes, tail.received],
  }
}

/** *Server.* The end of a request that leaves nothing to note. */
export function releaseUpload({ id, lease }: Held): Statement {
  return {
    text: 'UPDATE storage.resumable_uploads SET lease = NULL WHERE id = $1::uuid AND lease = $2::uuid',
    params: [id, lease],
  }
}

/** *Server.* Rows `{ n, etag }` in their order. */
export function sentParts(id: string): Statement {
  return {
    text: 'SELECT n, etag FROM storage.resumable_parts WHERE upload = $1::uuid ORDER BY n',
    params: [id],
  }
}

/** What Postgres says when somebody else has taken the upload that was to be ended. */
export const TAKEN = 'the upload was taken by another request'

/** *Server.* All has come; its parts are forgotten. Fails with `TAKEN` in the message. */
export function endUpload({ id, lease }: Held): Statement {
  return {
    text: `WITH mine AS (
        UPDATE storage.resumable_uploads SET received = size, upload_id = NULL, tail = NULL, tail_bytes = 0, ended = true
         WHERE id = $1::uuid AND lease = $2::uuid AND NOT ended RETURNING id
      ), forgotten AS (
        DELETE FROM storage.resumable_parts WHERE upload = (SELECT id FROM mine)
      )
      SELECT CASE count(*) WHEN 0 THEN ($3::text || count(*))::int END FROM mine`,
    params: [id, lease, TAKEN],
  }
}

/** *Server.* */
export function forgetUploads(ids: readonly string[]): Statement {
  return { text: 'DELETE FROM storage.resumable_uploads WHERE id = ANY ($1::uuid[])', params: [ids] }
}

/** *Server.* One row, or none where somebody else has taken the upload. */
export function forgetMine({ id, lease }: Held): Statement {
  return {
    text: 'DELETE FROM storage.resumable_uploads WHERE id = $1::uuid AND lease = $2::uuid RETURNING id',
    params: [id, lease],
  }
}

/** *Server.* Removes those whose time was over at `until` and that left nothing in the bucket. One row, `{ count }`. */
export function forgetExpired(until: Date, countMax: number): Statement {
  return {
    text: `WITH gone AS (
        DELETE FROM storage.resumable_uploads WHERE id IN (SELECT id FROM storage.resumable_uploads
          WHERE expires_at <= $1::timestamptz AND upload_id IS NULL ORDER BY expires_at LIMIT $2::bigint) RETURNING id
      )
      SELECT count(*)::int AS count FROM gone`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* Rows `{ id, upload_id }`: those whose time was over at `until` and whose parts the bucket has. */
export function expiredUploads(until: Date, countMax: number): Statement {
  return {
    text: `SELECT id, upload_id FROM storage.resumable_uploads WHERE expires_at <= $1::timestamptz AND upload_id IS NOT NULL
      ORDER BY expires_at LIMIT $2::bigint`,
    params: [until.toISOString(), countMax],
  }
}

import type { Statement } from '../../../engine/engine.ts'
import { INTERNAL_SCHEMA } from '../../../engine/storage/names.ts'
import { RULES } from './buckets.ts'
import type { FoundObject } from './object-rows.ts'
import { time } from './values.ts'

/** The state of a resumable upload. */
export interface Upload {
  /** Also the version of its bytes. */
  id: string
  bucket_id: string
  name: string
  /** The role of its creator; null if it was created with a signed token. */
  role: string | null
  owner_id: string | null
  upsert: boolean
  /** JSON of a `Description`. */
  description: string
  /** `Upload-Metadata` as sent. */
  metadata: string
  token_id: string | null
  token_expires_at: string | null
  /** Null until the client sends it. */
  size: number | null
  size_max: number
  part_bytes: number
  received: number
  /** The id of the multipart upload in the bucket; null before the first part. */
  upload_id: string | null
  /** The version that holds the bytes after the last part, which do not fill a part. */
  tail: string | null
  tail_bytes: number
  next_part: number
  /** Whether the object has its row. */
  ended: boolean
  /** Whether a request holds the lease; after a crash it is held until the next request. */
  leased: boolean
  expires_at: string
}

const UPLOAD = `u.id, u.bucket_id, u.name, u.role, u.owner_id, u.upsert, u.description, u.metadata, u.token_id,
  ${time('u.token_expires_at')} AS token_expires_at, u.size::float8, u.size_max::float8, u.part_bytes, u.received::float8,
  u.upload_id, u.tail, u.tail_bytes, u.next_part, u.ended, u.lease IS NOT NULL AND NOT u.ended AS leased,
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

/** *Server.* The new `Upload`; it is leased at once if the first request contains bytes. */
export function insertUpload(upload: NewUpload): Statement {
  const columns = Object.keys(upload).join(', ')
  return {
    text: `INSERT INTO ${INTERNAL_SCHEMA}.resumable_uploads AS u (${columns})
      SELECT ${columns} FROM jsonb_populate_record(NULL::${INTERNAL_SCHEMA}.resumable_uploads, $1::jsonb) RETURNING ${UPLOAD}`,
    params: [JSON.stringify(upload)],
  }
}

/** An upload with the present limits of its bucket; null if that was deleted. */
export interface FoundUpload extends Upload {
  bucket: FoundObject['bucket'] | null
}

/** *Server.* The `FoundUpload`, or none if it does not exist or has expired. */
export function findUpload(id: string, now: Date): Statement {
  return {
    text: `SELECT ${UPLOAD},
        (SELECT to_jsonb(rules) FROM (SELECT ${RULES} FROM storage.buckets AS b WHERE b.id = u.bucket_id) AS rules) AS bucket
      FROM ${INTERNAL_SCHEMA}.resumable_uploads AS u WHERE u.id = $1::uuid AND u.expires_at > $2::timestamptz`,
    params: [id, now.toISOString()],
  }
}

interface Held {
  id: string
  lease: string
}

interface LeaseRequest extends Held {
  /** Offset in the upload of the first byte of the request. A request without bytes leaves it out. */
  offset?: number
  /** The size of the object, if this request is the first to contain it. */
  size?: number | null
  size_max?: number
}

/**
 * *Server.* The `Upload`, or none if it has ended or has another offset. The request that held the lease can record nothing more. Its part
 * number is skipped, so that a part that it still sends does not replace a later one.
 */
export function leaseUpload({ id, lease, offset, size, size_max }: LeaseRequest): Statement {
  return {
    text: `UPDATE ${INTERNAL_SCHEMA}.resumable_uploads AS u
         SET lease = $2::uuid, next_part = next_part + (lease IS NOT NULL)::int, size = coalesce(size, $4::bigint),
           size_max = coalesce($5::bigint, size_max)
       WHERE u.id = $1::uuid AND u.received = coalesce($3::bigint, u.received) AND NOT u.ended RETURNING ${UPLOAD}`,
    params: [id, lease, offset ?? null, size ?? null, size_max ?? null],
  }
}

interface RecordedPart {
  n: number
  etag: string
  uploadId: string
  received: number
  /** Whether the request contains no more bytes. */
  isEnd: boolean
}

/** *Server.* One row, `{ next_part }`, or none if the lease was lost. */
export function recordPart(held: Held, part: RecordedPart): Statement {
  return {
    text: `WITH mine AS (
        UPDATE ${INTERNAL_SCHEMA}.resumable_uploads
           SET received = $6::bigint, upload_id = $5::text, tail = NULL, tail_bytes = 0, next_part = next_part + 1,
               lease = CASE WHEN NOT $7::boolean THEN lease END
         WHERE id = $1::uuid AND lease = $2::uuid RETURNING id, next_part
      ), part AS (
        INSERT INTO ${INTERNAL_SCHEMA}.resumable_parts (upload, n, etag) SELECT id, $3::int, $4::text FROM mine
      )
      SELECT next_part FROM mine`,
    params: [held.id, held.lease, part.n, part.etag, part.uploadId, part.received, part.isEnd],
  }
}

/** *Server.* Records the tail and ends the lease. One row, or none if the lease was lost. */
export function recordTail(held: Held, tail: { version: string; bytes: number; received: number }): Statement {
  return {
    text: `UPDATE ${INTERNAL_SCHEMA}.resumable_uploads SET received = $5::bigint, tail = $3::uuid, tail_bytes = $4::int, lease = NULL
      WHERE id = $1::uuid AND lease = $2::uuid RETURNING id`,
    params: [held.id, held.lease, tail.version, tail.bytes, tail.received],
  }
}

/** *Server.* Ends the lease of a request that has nothing to record. */
export function releaseUpload({ id, lease }: Held): Statement {
  return {
    text: `UPDATE ${INTERNAL_SCHEMA}.resumable_uploads SET lease = NULL WHERE id = $1::uuid AND lease = $2::uuid`,
    params: [id, lease],
  }
}

/** *Server.* Rows `{ n, etag }`, ordered by `n`. */
export function sentParts(id: string): Statement {
  return {
    text: `SELECT n, etag FROM ${INTERNAL_SCHEMA}.resumable_parts WHERE upload = $1::uuid ORDER BY n`,
    params: [id],
  }
}

/** Part of the error of `endUpload` if another request has leased the upload. */
export const LEASE_LOST = 'the upload was leased by another request'

/** *Server.* Marks the upload as ended and deletes the rows of its parts. Fails with `LEASE_LOST` in the message. */
export function endUpload({ id, lease }: Held): Statement {
  return {
    text: `WITH mine AS (
        UPDATE ${INTERNAL_SCHEMA}.resumable_uploads SET received = size, upload_id = NULL, tail = NULL, tail_bytes = 0, ended = true
         WHERE id = $1::uuid AND lease = $2::uuid AND NOT ended RETURNING id
      ), deleted AS (
        DELETE FROM ${INTERNAL_SCHEMA}.resumable_parts WHERE upload = (SELECT id FROM mine)
      )
      SELECT CASE count(*) WHEN 0 THEN ($3::text || count(*))::int END FROM mine`,
    params: [id, lease, LEASE_LOST],
  }
}

/** *Server.* */
export function deleteUploads(ids: readonly string[]): Statement {
  return { text: `DELETE FROM ${INTERNAL_SCHEMA}.resumable_uploads WHERE id = ANY ($1::uuid[])`, params: [ids] }
}

/** *Server.* One row, or none if the lease was lost. */
export function deleteLeasedUpload({ id, lease }: Held): Statement {
  return {
    text: `DELETE FROM ${INTERNAL_SCHEMA}.resumable_uploads WHERE id = $1::uuid AND lease = $2::uuid RETURNING id`,
    params: [id, lease],
  }
}

/** *Server.* Deletes uploads that expired by `until` and have no parts in the bucket. One row, `{ count }`. */
export function deleteExpiredUploads(until: Date, countMax: number): Statement {
  return {
    text: `WITH gone AS (
        DELETE FROM ${INTERNAL_SCHEMA}.resumable_uploads WHERE id IN (SELECT id FROM ${INTERNAL_SCHEMA}.resumable_uploads
          WHERE expires_at <= $1::timestamptz AND upload_id IS NULL ORDER BY expires_at LIMIT $2::bigint) RETURNING id
      )
      SELECT count(*)::int AS count FROM gone`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* Rows `{ id, upload_id }`: uploads that expired by `until` and have parts in the bucket. */
export function expiredUploads(until: Date, countMax: number): Statement {
  return {
    text: `SELECT id, upload_id FROM ${INTERNAL_SCHEMA}.resumable_uploads WHERE expires_at <= $1::timestamptz AND upload_id IS NOT NULL
      ORDER BY expires_at LIMIT $2::bigint`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* Uploads after an id that have parts in the bucket, by id. */
export function uploadsWithParts(after: string, countMax: number): Statement {
  return {
    text: `SELECT id, upload_id FROM ${INTERNAL_SCHEMA}.resumable_uploads WHERE upload_id IS NOT NULL AND id > $1::uuid
      ORDER BY id LIMIT $2::bigint`,
    params: [after, countMax],
  }
}

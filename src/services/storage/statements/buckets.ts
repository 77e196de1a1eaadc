import type * as z from 'zod'
import type { Statement } from '../../../engine/engine.ts'
import type { Bucket, ListBuckets } from '../schema.ts'
import { time, uuidOrNull } from './values.ts'

export type BucketRow = z.output<typeof Bucket>

/** The API accepts no more types, but SQL of the project does. */
const MIME_TYPES = 'to_jsonb(b.allowed_mime_types[:1000])'
const LIMITS = `b.file_size_limit::float8 AS file_size_limit, ${MIME_TYPES} AS allowed_mime_types`
export const RULES = `b.id, b.public, ${LIMITS}`
/** The fields that the specification lists, and no others. */
const BUCKET = `b.id, b.name, coalesce(b.owner::text, '') AS owner, b.public, ${LIMITS},
  ${time('b.created_at')} AS created_at, ${time('b.updated_at')} AS updated_at`

export interface NewBucket {
  id: string
  name: string
  ownerId: string | null
  public: boolean
  fileSizeLimit: number | null
  allowedMimeTypes: string[] | null
  type: string
}

/** One row, `{ name }`, or none if a trigger skipped it; fails with 23505 if the id or the name is taken. */
export function createBucket(bucket: NewBucket): Statement {
  const { id, name, ownerId, fileSizeLimit, allowedMimeTypes, type } = bucket
  return {
    text: `WITH written AS (
        INSERT INTO storage.buckets (id, name, owner, owner_id, public, file_size_limit, allowed_mime_types, type)
        VALUES ($1::text, $2::text, $3::uuid, $4::text, $5::boolean, $6::bigint, $7::text[], $8::storage.buckettype)
        RETURNING 1)
      SELECT $2::text AS name FROM written`,
    params: [id, name, uuidOrNull(ownerId), ownerId, bucket.public, fileSizeLimit, allowedMimeTypes, type],
  }
}

/** The `BucketRow`, or no row. */
export function getBucket(id: string): Statement {
  return { text: `SELECT ${BUCKET} FROM storage.buckets AS b WHERE b.id = $1::text`, params: [id] }
}

/** *Server.* Fails with 22012 (division by zero) if the limits of the bucket have changed. */
export function assertRules({ id, file_size_limit, allowed_mime_types }: BucketRules): Statement {
  return {
    text: `SELECT 1 / (b.file_size_limit::float8 IS NOT DISTINCT FROM $2::float8
        AND ${MIME_TYPES} IS NOT DISTINCT FROM $3::jsonb)::int FROM storage.buckets AS b WHERE b.id = $1::text`,
    params: [id, file_size_limit, allowed_mime_types && JSON.stringify(allowed_mime_types)],
  }
}

type BucketRules = Pick<BucketRow, 'id' | 'file_size_limit' | 'allowed_mime_types'>

/** `BucketRow`s; all buckets if no limit is given. */
export function listBuckets(listing: z.output<typeof ListBuckets>): Statement {
  const { limit, offset, sortColumn = 'id', sortOrder = 'asc', search } = listing
  return {
    text: `SELECT ${BUCKET} FROM storage.buckets AS b
      WHERE position(lower($1::text) IN lower(b.name)) > 0
      ORDER BY b.${sortColumn} ${sortOrder}, b.id LIMIT $2::bigint OFFSET $3::bigint`,
    params: [search ?? '', limit ?? null, offset ?? 0],
  }
}

/** An undefined field is left unchanged. */
export interface BucketChanges {
  public?: boolean | undefined
  fileSizeLimit?: number | null | undefined
  allowedMimeTypes?: string[] | null | undefined
}

/** One row, `{ id }`, or none if the bucket does not exist, is not visible or may not be changed. */
export function updateBucket(id: string, changes: BucketChanges): Statement {
  const { fileSizeLimit, allowedMimeTypes } = changes
  return {
    text: `UPDATE storage.buckets SET public = coalesce($2::boolean, public),
        file_size_limit = CASE WHEN $3::boolean THEN $4::bigint ELSE file_size_limit END,
        allowed_mime_types = CASE WHEN $5::boolean THEN $6::text[] ELSE allowed_mime_types END
      WHERE id = $1::text RETURNING id`,
    params: [
      id,
      changes.public ?? null,
      fileSizeLimit !== undefined,
      fileSizeLimit ?? null,
      allowedMimeTypes !== undefined,
      allowedMimeTypes ?? null,
    ],
  }
}

/** One row, `{ id }`, or none; fails with 23503 while the bucket has objects. */
export function deleteBucket(id: string): Statement {
  return { text: 'DELETE FROM storage.buckets WHERE id = $1::text RETURNING id', params: [id] }
}

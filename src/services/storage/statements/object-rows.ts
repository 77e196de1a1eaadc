import type { BucketRow } from './buckets.ts'
import { time } from './values.ts'

export interface ObjectRow {
  id: string
  bucket_id: string
  name: string
  owner: string | null
  owner_id: string | null
  version: string | null
  metadata: Record<string, unknown> | null
  /** JSON text, because a double cannot hold all its numbers. It may be large, so it is selected only where a reply contains it. */
  user_metadata?: string | null
  created_at: string | null
  updated_at: string | null
  last_accessed_at: string | null
}

/** The limits of a bucket, and the object if it exists. */
export interface FoundObject {
  bucket: Pick<BucketRow, 'id' | 'public' | 'file_size_limit' | 'allowed_mime_types'>
  object: ObjectRow | null
}

/** The values of a row to be written. An existing row keeps its own id. */
export interface NewObject {
  id: string
  bucketId: string
  name: string
  version: string
  ownerId: string | null
  metadata: Record<string, unknown>
  /** JSON text. */
  userMetadata: string | null
}

/** The bucket and key of an object. */
export interface Place {
  bucketId: string
  name: string
}

export const times = (of: string) =>
  ['created_at', 'updated_at', 'last_accessed_at'].map((name) => `${time(`${of}.${name}`)} AS ${name}`).join(', ')

/** In bytes of text. The server writes less, with each character of its headers escaped. */
const METADATA_BYTES_MAX = 16_384
/** SQL of the project can write any value, and parsing a large one would stop all projects of the Worker for seconds. */
export const METADATA = `CASE WHEN octet_length(o.metadata::text) <= ${METADATA_BYTES_MAX} THEN o.metadata END AS metadata`

/** The columns of an object, without its user metadata. */
export const OBJECT = `o.id::text AS id, o.bucket_id, o.name, o.owner::text AS owner, o.owner_id, o.version, ${METADATA}, ${times('o')}`

export const OBJECT_AND_USER_METADATA = `${OBJECT}, o.user_metadata::text AS user_metadata`

export type Columns = typeof OBJECT | typeof OBJECT_AND_USER_METADATA

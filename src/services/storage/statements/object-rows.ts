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
  /** JSON, whose numbers a double may not hold; only of what is read, as it may be large. */
  user_metadata?: string | null
  created_at: string | null
  updated_at: string | null
  last_accessed_at: string | null
}

/** The rules of a bucket, and the object where there is one. */
export interface FoundObject {
  bucket: Pick<BucketRow, 'id' | 'public' | 'file_size_limit' | 'allowed_mime_types'>
  object: ObjectRow | null
}

/** What is written of an object; the id is new also where a row stands, which then keeps its own. */
export interface NewObject {
  id: string
  bucketId: string
  name: string
  version: string
  ownerId: string | null
  metadata: Record<string, unknown>
  /** JSON. */
  userMetadata: string | null
}

export interface Place {
  bucketId: string
  name: string
}

export const times = (of: string) =>
  ['created_at', 'updated_at', 'last_accessed_at'].map((name) => `${time(`${of}.${name}`)} AS ${name}`).join(', ')

/** Of what is written, moved or deleted, of which many may come at once. */
export const CHANGED = `o.id::text AS id, o.bucket_id, o.name, o.owner::text AS owner, o.owner_id, o.version, o.metadata, ${times('o')}`

export const OBJECT = `${CHANGED}, o.user_metadata::text AS user_metadata`

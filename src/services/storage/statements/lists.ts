import type { Statement } from '../../../engine/engine.ts'
import { METADATA, type Place, times } from './object-rows.ts'

export interface Listing {
  bucketId: string
  /** Ends in `/`, or is empty. */
  prefix: string
  search: string
  limit: number
  offset: number
  column: 'name' | 'updated_at' | 'created_at' | 'last_accessed_at'
  order: 'asc' | 'desc'
}

/** Folders and files directly under the prefix: `{ name, id, updated_at, created_at, last_accessed_at, metadata }`; a folder has a name only. */
export function listObjects({ bucketId, prefix, search, limit, offset, column, order }: Listing): Statement {
  return {
    text: `SELECT o.name, o.id::text AS id, ${times('o')}, o.metadata
      FROM storage.search($1::text, $2::text, $3::integer, $4::integer, $5::integer, $6::text, $7::text, $8::text) AS o`,
    params: [prefix, bucketId, limit, prefix.split('/').length, offset, search, column, order],
  }
}

export interface Page {
  bucketId: string
  prefix: string
  delimited: boolean
  /** One more than a page has, to find out whether there is a next page. */
  limit: number
  column: 'name' | 'updated_at' | 'created_at'
  order: 'asc' | 'desc'
  /** The last entry of the previous page. The name of a folder ends in `/`, and it has no time. A file without a time has `-infinity`. */
  after?: { name: string; time?: string | undefined } | undefined
}

/**
 * Rows `{ name, id, metadata, updated_at, created_at, last_accessed_at }` with full names. A folder's name ends in `/` and its id is null.
 * When sorted by time, folders come first.
 */
export function listPage({ bucketId, prefix, delimited, limit, column, order, after }: Page): Statement {
  return {
    text: `SELECT o.name, o.id::text AS id, ${METADATA}, ${times('o')}
      FROM storage.list_objects_with_delimiter($1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::text, $8::timestamptz) AS o`,
    params: [bucketId, prefix, delimited ? '/' : '', limit, after?.name ?? null, order, column, after?.time ?? null],
  }
}

/** The file with exactly this name: one row like those of `listPage`, and its `version`. */
export function exactFile({ bucketId, name }: Place, offset = 0): Statement {
  return {
    text: `SELECT o.name, o.id::text AS id, coalesce(o.version, '') AS version, ${METADATA}, ${times('o')}
      FROM storage.objects AS o WHERE o.bucket_id = $1::text AND o.name = $2::text OFFSET $3::bigint`,
    params: [bucketId, name, offset],
  }
}

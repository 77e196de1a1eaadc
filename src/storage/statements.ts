import type { Statement } from '../engine/engine.ts'

/**
 * Every statement that the storage server sends to a project's database. Those marked *server* run as the server, whom no policy
 * binds; the others as the caller's role. Numbers of rows and bytes come as numbers, times as text such as `2026-01-02T03:04:05.678Z`.
 */

export interface BucketRow {
  id: string
  name: string
  owner: string | null
  owner_id: string | null
  public: boolean
  file_size_limit: number | null
  allowed_mime_types: string[] | null
  type: string
  created_at: string
  updated_at: string
}

export interface ObjectRow {
  id: string
  bucket_id: string
  name: string
  owner: string | null
  owner_id: string | null
  version: string | null
  metadata: Record<string, unknown> | null
  /** JSON, whose numbers a double may not hold. */
  user_metadata: string | null
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

const time = (expression: string) => `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
const times = (of: string) =>
  ['created_at', 'updated_at', 'last_accessed_at'].map((name) => `${time(`${of}.${name}`)} AS ${name}`).join(', ')
const OBJECT = `o.id::text AS id, o.bucket_id, o.name, o.owner::text AS owner, o.owner_id, o.version, o.metadata,
  o.user_metadata::text AS user_metadata, ${times('o')}`
const RULES = `b.id, b.public, b.file_size_limit::float8 AS file_size_limit, to_jsonb(b.allowed_mime_types) AS allowed_mime_types`
const BUCKET = `${RULES}, b.name, b.owner::text AS owner, b.owner_id, b.type::text AS type,
  ${time('b.created_at')} AS created_at, ${time('b.updated_at')} AS updated_at`

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
/** The older column can hold only the users whose ids are UUIDs. */
const uuidOrNull = (text: string | null) => (text !== null && UUID.test(text) ? text : null)

/** *Server.* One `FoundObject`, or no row: no such bucket. */
export function readObject({ bucketId, name }: Place): Statement {
  return {
    text: `SELECT (SELECT to_jsonb(rules) FROM (SELECT ${RULES}) AS rules) AS bucket,
        CASE WHEN o.id IS NOT NULL THEN (SELECT to_jsonb(object) FROM (SELECT ${OBJECT}) AS object) END AS object
      FROM storage.buckets AS b LEFT JOIN storage.objects AS o ON o.bucket_id = b.id AND o.name = $2::text
     WHERE b.id = $1::text`,
    params: [bucketId, name],
  }
}

/** One row, `{ visible: boolean }`. */
export function isVisible({ bucketId, name }: Place): Statement {
  return {
    text: `SELECT EXISTS (SELECT FROM storage.objects WHERE bucket_id = $1::text AND name = $2::text) AS visible`,
    params: [bucketId, name],
  }
}

/** Rows `{ name }`: those of the names that the caller may see. */
export function visibleNames(bucketId: string, names: readonly string[]): Statement {
  return {
    text: `SELECT name FROM storage.objects WHERE bucket_id = $1::text AND name = ANY ($2::text[])`,
    params: [bucketId, names],
  }
}

/** One row, `{ outcome: 'ok' | 'exists' }`; fails where a policy refuses. Leaves nothing behind. */
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
 * One `ObjectRow`, or no row where a trigger left it out; fails with 23505 where the name is taken. Needs the right to insert alone,
 * not to see what it wrote.
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

/** One `ObjectRow`, or no row where a trigger left it out. */
export function upsertObject(object: NewObject): Statement {
  return {
    text: `INSERT INTO storage.objects AS o ${NEW_OBJECT}
      ON CONFLICT (bucket_id, name) DO UPDATE SET version = excluded.version, owner = excluded.owner,
        owner_id = excluded.owner_id, metadata = excluded.metadata, user_metadata = excluded.user_metadata
      RETURNING ${OBJECT}`,
    params: objectParams(object),
  }
}

/** The `ObjectRow` at its new place, or no row: not there, not visible or not to be changed. A taken place fails with 23505. */
export function moveObject(from: Place, to: Place): Statement {
  const there = `o.bucket_id = $1::text AND o.name = $2::text`
  const stays = `($1::text, $2::text) = ($3::text, $4::text)`
  return {
    text: `WITH moved AS (
        UPDATE storage.objects AS o SET bucket_id = $3::text, name = $4::text WHERE ${there} AND NOT ${stays} RETURNING ${OBJECT})
      SELECT * FROM moved UNION ALL SELECT ${OBJECT} FROM storage.objects AS o WHERE ${there} AND ${stays}`,
    params: [from.bucketId, from.name, to.bucketId, to.name],
  }
}

/** The deleted `ObjectRow`s: those of the names that the caller may see and delete. */
export function deleteObjects(bucketId: string, names: readonly string[]): Statement {
  return {
    text: `DELETE FROM storage.objects AS o WHERE o.bucket_id = $1::text AND o.name = ANY ($2::text[]) RETURNING ${OBJECT}`,
    params: [bucketId, names],
  }
}

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

/** Folders and files right under the prefix: `{ name, id, updated_at, created_at, last_accessed_at, metadata }`, a folder's all null. */
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
  /** Ask for one more than a page holds, to see whether there is a next one. */
  limit: number
  column: 'name' | 'updated_at' | 'created_at'
  order: 'asc' | 'desc'
  /** Where the last page ended: the name of its last entry (a folder's with its slash), and its time, which folders do not have. */
  after?: { name: string; time?: string | undefined } | undefined
}

/**
 * `{ name, id, metadata, updated_at, created_at, last_accessed_at }`, names in full; a folder's ends in `/` and its id is null.
 * By time, folders come first.
 */
export function listPage({ bucketId, prefix, delimited, limit, column, order, after }: Page): Statement {
  return {
    text: `SELECT o.name, o.id::text AS id, o.metadata, ${times('o')}
      FROM storage.list_objects_with_delimiter($1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::text, $8::timestamptz) AS o`,
    params: [bucketId, prefix, delimited ? '/' : '', limit, after?.name ?? null, order, column, after?.time ?? null],
  }
}

export interface NewBucket {
  id: string
  name: string
  ownerId: string | null
  public: boolean
  fileSizeLimit: number | null
  allowedMimeTypes: string[] | null
  type: string
}

/** One row, `{ name }`, or none where a trigger left it out; fails with 23505 where the id or the name is taken. */
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

export interface BucketListing {
  limit?: number | undefined
  offset?: number | undefined
  sortColumn?: 'id' | 'name' | 'created_at' | 'updated_at' | undefined
  sortOrder?: 'asc' | 'desc' | undefined
  search?: string | undefined
}

/** `BucketRow`s, all of them without a limit. */
export function listBuckets(listing: BucketListing = {}): Statement {
  const { limit, offset, sortColumn = 'id', sortOrder = 'asc', search } = listing
  return {
    text: `SELECT ${BUCKET} FROM storage.buckets AS b
      WHERE position(lower($1::text) IN lower(b.name)) > 0
      ORDER BY b.${sortColumn} ${sortOrder}, b.id LIMIT $2::bigint OFFSET $3::bigint`,
    params: [search ?? '', limit ?? null, offset ?? 0],
  }
}

/** Undefined = left as it is. */
export interface BucketChanges {
  public?: boolean | undefined
  fileSizeLimit?: number | null | undefined
  allowedMimeTypes?: string[] | null | undefined
}

/** One row, `{ id }`, or no row: not there, not visible or not to be changed. */
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

/** One row, `{ id }`, or no row; fails with 23503 while it holds objects. */
export function deleteBucket(id: string): Statement {
  return { text: 'DELETE FROM storage.buckets WHERE id = $1::text RETURNING id', params: [id] }
}

/** *Server.* One row, `{ count }`, which stops counting at `countMax + 1`. */
export function countObjects(bucketId: string, countMax: number): Statement {
  return {
    text: `SELECT count(*)::float8 AS count
      FROM (SELECT FROM storage.objects WHERE bucket_id = $1::text LIMIT $2::bigint + 1) AS counted`,
    params: [bucketId, countMax],
  }
}

/** *Server.* Removes the objects of a bucket, at most `countMax` at once; one row, `{ count }`. */
export function emptyBucket(bucketId: string, countMax: number): Statement {
  return {
    text: `WITH gone AS (
        DELETE FROM storage.objects WHERE bucket_id = $1::text AND name = ANY (
          ARRAY(SELECT name FROM storage.objects WHERE bucket_id = $1::text ORDER BY name LIMIT $2::bigint)) RETURNING 1)
      SELECT count(*)::float8 AS count FROM gone`,
    params: [bucketId, countMax],
  }
}

/** *Server.* Rows `{ version, used }`: bytes that nothing pointed at any more when it was written down, up to `until`; `used` = something does now. */
export function removedVersions(until: Date, countMax: number): Statement {
  return {
    text: `SELECT r.version, EXISTS (SELECT FROM storage.objects AS o WHERE o.version = r.version) AS used
      FROM storage.removed_versions AS r WHERE r.removed_at <= $1::timestamptz ORDER BY r.version LIMIT $2::bigint`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* Once their bytes are gone, or are used. */
export function forgetVersions(versions: readonly string[]): Statement {
  return { text: 'DELETE FROM storage.removed_versions WHERE version = ANY ($1::text[])', params: [versions] }
}

/** *Server.* Rows `{ version }`: those of the versions that an object points at, or that wait to be removed. */
export function knownVersions(versions: readonly string[]): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version = ANY ($1::text[])
      UNION SELECT version FROM storage.removed_versions WHERE version = ANY ($1::text[])`,
    params: [versions],
  }
}

/** One row, `{ json }`: the text of an array of the statement's rows. Many rows cost much less as one value. */
export function asJson({ text, params }: Statement): Statement {
  return { text: `SELECT coalesce(json_agg(row), '[]')::text AS json FROM (${text}) AS row`, params }
}

/** *Server.* Fails with 23505 (`used_tokens_pkey`) where the token was used before. */
export function useToken({ id, expires }: { id: string; expires: Date }): Statement {
  return {
    text: 'INSERT INTO storage.used_tokens (id, expires_at) VALUES ($1::uuid, $2::timestamptz)',
    params: [id, expires.toISOString()],
  }
}

/** *Server.* One row, `{ used }`. */
export function isTokenUsed({ id }: { id: string }): Statement {
  return { text: 'SELECT EXISTS (SELECT FROM storage.used_tokens WHERE id = $1::uuid) AS used', params: [id] }
}

/** *Server.* */
export function forgetTokens(): Statement {
  return { text: 'DELETE FROM storage.used_tokens WHERE expires_at < now()', params: [] }
}

/** *Server.* Rows `{ version }` in their order, those after `after` up to `until` (null: to the end). */
export function versionsBetween(after: string | null, until: string | null, countMax: number): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version > coalesce($1::text, '') AND ($2::text IS NULL OR version <= $2::text)
      ORDER BY version LIMIT $3::bigint`,
    params: [after, until, countMax],
  }
}

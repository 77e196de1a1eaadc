import type * as z from 'zod'
import type { Row } from '../../engine/engine.ts'
import { SqlError } from '../../engine/engine-errors.ts'
import { BucketError } from '../../platform/blobs/bucket.ts'
import { PIECE_BYTES, readPieces } from '../../platform/blobs/ranged-read.ts'
import { openStore, readAll } from '../../platform/blobs/store.ts'
import type { Range } from '../../platform/http/conditional-request.ts'
import { SizedCache } from '../../platform/sized-cache.ts'
import { storedBlobKey } from './blob-key.ts'
import { waitWhileBucketResponds } from './bucket-timeout.ts'
import { asCaller, asServer, type Caller, type Storage } from './database.ts'
import { CONTENT_ENCODING } from './incoming-upload.ts'
import { planReply, type ResponseMetadata } from './object-response.ts'
import type { Conditions, Download } from './schema.ts'
import { type Columns, type FoundObject, OBJECT, type ObjectRow, type Place } from './statements/object-rows.ts'
import { readObject, visibleObject, visibleObjectIfPrivate } from './statements/objects.ts'
import { StorageError } from './storage-error.ts'

/** The reader of an object: anyone, if the bucket is public; the holder of a signed URL; or a caller to whom policies apply. */
export type Reader =
  | { kind: 'anyone' }
  /** With `version`, the URL is valid for that version only. */
  | { kind: 'signed'; expires: Date; version?: unknown }
  | { kind: 'caller'; caller: Caller | undefined }
  /** A caller that signs a URL for others. Policies apply in a public bucket too, because it may become private later. */
  | { kind: 'signer'; caller: Caller }

interface Found {
  object: ObjectRow
  /** Whether anyone may read the object. */
  isPublic: boolean
}

interface FindOptions {
  version?: string | null | undefined
  columns?: Columns
}

/** Finds an object, of which only the newest version exists. Errors reveal no more than the reader may know. */
export async function findObject(
  storage: Storage,
  place: Place,
  reader: Reader,
  { version, columns = OBJECT }: FindOptions = {},
): Promise<Found> {
  const { found, visible } = await queryObject(storage, place, reader, columns)
  if (!found) throw new StorageError('NoSuchBucket')
  const isPublic = found.bucket.public
  const isOpen = reader.kind === 'signed' || (isPublic && reader.kind !== 'signer')
  if (!isOpen && (reader.kind === 'anyone' || !reader.caller)) throw new StorageError('NoSuchBucket')
  const object = isOpen ? found.object : visible
  const versions = [version, reader.kind === 'signed' && reader.version]
  if (!object || versions.some((each) => each && each !== object.version)) throw new StorageError('NoSuchKey')
  return { object, isPublic }
}

/**
 * Reads the row as the server (`found`) and as the caller's policies show it (`visible`), in one round trip. A caller gets the visible
 * row: the found one was read earlier and may be another version.
 */
async function queryObject(
  storage: Storage,
  place: Place,
  reader: Reader,
  columns: Columns,
): Promise<{ found?: FoundObject; visible?: ObjectRow | null }> {
  const caller = 'caller' in reader ? reader.caller : undefined
  // No policy applies to the service role.
  if (!caller || caller.role === 'service_role') {
    const [[row] = []] = await asServer(storage, [readObject(place, { columns })])
    const found = row as unknown as FoundObject | undefined
    return { found, visible: caller && found?.object }
  }
  const readPublic = readObject(place, { columns, onlyPublic: true })
  const visible = reader.kind === 'signer' ? visibleObject(place, columns) : visibleObjectIfPrivate(place, columns)
  const rows = await asCaller(storage, caller, [visible], [readPublic]).catch(async (error) => {
    // A policy that fails must not prevent reads of a public bucket.
    const [[row] = []] =
      error instanceof SqlError && reader.kind === 'caller' ? await asServer(storage, [readPublic]) : []
    if (!(row as unknown as FoundObject | undefined)?.bucket.public) throw error
    return [[row as Row]]
  })
  const [[found] = [], [object] = []] = rows
  return { found: found as unknown as FoundObject, visible: object as unknown as ObjectRow }
}

/** The metadata of a row, with defaults for fields that the project's SQL left out or made invalid. */
export function metadataOf(object: ObjectRow): ResponseMetadata {
  const { size, mimetype, cacheControl, eTag, lastModified, xRobotsTag, contentEncoding } = object.metadata ?? {}
  return {
    name: object.name,
    size: typeof size === 'number' && Number.isSafeInteger(size) && size >= 0 ? size : 0,
    mimetype: headerOr('application/octet-stream', mimetype),
    cacheControl: headerOr('no-cache', cacheControl),
    etag: headerOr(headerOr(`"${object.id}"`, `"${object.version ?? object.id}"`), eTag),
    lastModified: timeOf(lastModified) ?? timeOf(object.updated_at) ?? new Date(0),
    xRobotsTag: headerOr('none', xRobotsTag),
    contentEncoding:
      typeof contentEncoding === 'string' && CONTENT_ENCODING.test(contentEncoding) ? contentEncoding : undefined,
  }
}

const headerOr = (fallback: string, value: unknown): string =>
  typeof value === 'string' && /^[\x20-\x7e]{1,1000}$/.test(value) ? value : fallback

function timeOf(value: unknown): Date | undefined {
  const time = new Date(typeof value === 'string' ? value : Number.NaN)
  return Number.isNaN(time.getTime()) ? undefined : time
}

/** Attempts to read an object that is replaced between reading its row and its bytes. */
const TRIES = 3

interface ReadRequest {
  storage: Storage
  place: Place
  method: string
  query: z.output<typeof Download>
  headers: z.output<typeof Conditions>
}

/** Replies with the bytes, or the requested part of them. */
export async function serveObject(request: ReadRequest, reader: Reader): Promise<Response> {
  const { storage, place, query } = request
  const isHead = request.method === 'HEAD'
  // HEAD describes the whole object: conditions and ranges are ignored.
  const headers: Record<string, string | undefined> = isHead ? {} : request.headers
  const conditions = { get: (name: string) => headers[name] ?? null }
  for (let tries = 1; ; tries++) {
    const { object, isPublic } = await findObject(storage, place, reader, { version: query.versionId })
    const metadata = metadataOf(object)
    const plan = planReply(conditions, metadata, {
      download: query.download,
      isPublic,
      ...(reader.kind === 'signed' && { expires: reader.expires }),
    })
    if (plan.kind === 'not modified') return new Response(null, { status: 304, headers: plan.headers })
    // The bytes are stored as their encoding made them.
    const options = { headers: plan.headers, encodeBody: 'manual' } as const
    if (isHead) return new Response(null, options)
    const range = plan.kind === 'part' ? plan.range : undefined
    const body = await bytesOf(storage, object.version, { size: metadata.size, range })
    if (body) return new Response(body, { status: plan.kind === 'part' ? 206 : 200, ...options })
    if (tries === TRIES) {
      const { bucket_id: bucket, name: key, version } = object
      storage.ctx.log.error('storage_bytes_missing', { project: storage.project.ref, bucket, key, version })
      throw new StorageError('NoSuchKey', 'The resource was not found')
    }
  }
}

/** Larger objects are streamed and not cached. */
const CACHED_BYTES_MAX = 128 * 1024
/** Memory that an entry of the cache takes beside the bytes of its object. */
const ENTRY_BYTES = 1_024
/** Bytes of versions, which never change. The permission to read them is checked before each use. */
const cache = new SizedCache<Uint8Array<ArrayBuffer>>({ sizeMax: 16 * 1024 * 1024 })

interface Bytes {
  /** The size of the whole object. */
  size: number
  range: Range | undefined
}

/** Undefined if the bucket does not have bytes of this version and size. The project's owner can write any into the row. */
async function bytesOf(storage: Storage, version: string | null, { size, range }: Bytes) {
  const key = storedBlobKey(storage.project.ref, version)
  if (!key) return undefined
  const { offset, length } = range ?? { offset: 0, length: size }
  const cached = cache.get(key)
  if (cached) return cached.length === size ? cached.subarray(offset, offset + length) : undefined
  const get = (part?: Range) =>
    waitWhileBucketResponds(
      storage,
      part?.length ?? size,
      openStore(storage.ctx).get(key, part).catch(ignoreInvalidRange),
    )
  const found = length > PIECE_BYTES ? await readPieces({ offset, length }, get) : await get(range)
  if (found?.size !== length || found.sizeOfAll !== size) {
    await found?.body?.cancel()
    return undefined
  }
  if (range || length > CACHED_BYTES_MAX) return found.body
  const bytes = await readAll(found)
  if (bytes.length !== length) return undefined
  cache.set(key, bytes, length + ENTRY_BYTES)
  return bytes
}

function ignoreInvalidRange(error: unknown): undefined {
  if (!(error instanceof BucketError && error.code === 'InvalidRange')) throw error
}

/** Appends a field whose value is JSON text: parsing would change its numbers, and takes long if it is large. */
export const appendJson = (fields: object, name: string, json: string | null | undefined): string =>
  `${JSON.stringify(fields).slice(0, -1)},"${name}":${json === 'null' ? '{}' : (json ?? '{}')}}`

/** The reply of the `info` routes, in JSON. */
export function infoOf(object: ObjectRow): string {
  const { size, mimetype, cacheControl, contentEncoding, etag, lastModified } = metadataOf(object)
  const fields = {
    id: object.id,
    name: object.name,
    version: object.version,
    bucket_id: object.bucket_id,
    size,
    content_type: mimetype,
    cache_control: cacheControl,
    content_encoding: contentEncoding ?? null,
    etag,
    last_modified: object.updated_at ?? lastModified.toISOString(),
    created_at: object.created_at,
  }
  return appendJson(fields, 'metadata', object.user_metadata)
}

/** The fields that the specification lists, and no others. */
export const toObject = (object: ObjectRow) => ({
  id: object.id,
  name: object.name,
  bucket_id: object.bucket_id,
  owner: object.owner ?? '',
  owner_id: object.owner_id ?? '',
  version: object.version ?? '',
  created_at: object.created_at,
  updated_at: object.updated_at,
  last_accessed_at: object.last_accessed_at,
  metadata: object.metadata,
})

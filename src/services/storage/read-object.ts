import { type Row, SqlError } from '../../engine/engine.ts'
import { BucketError } from '../../platform/blobs/bucket.ts'
import { PIECE_BYTES, readPieces } from '../../platform/blobs/ranged-read.ts'
import { openStore } from '../../platform/blobs/store.ts'
import type { Range } from '../../platform/http/conditional-request.ts'
import { storedBlobKey } from './blob-key.ts'
import { cachedBytes, isCacheable, keepBytes } from './bytes-cache.ts'
import { asCaller, asServer, type Caller } from './database.ts'
import { parseExact } from './exact-json.ts'
import { type Described, planReply } from './object-response.ts'
import type { Storage, StorageContext } from './request.ts'
import { whileBucketAnswers } from './retry-until-ready.ts'
import type { FoundObject, ObjectRow, Place } from './statements/object-rows.ts'
import { readObject, seeIfClosed, seeObject } from './statements/objects.ts'
import { StorageError } from './storage-error.ts'

/** For whom an object is read: anybody, where its bucket is public; the holder of a signed URL; or a caller whom policies bind. */
export type Reader =
  | { kind: 'anybody' }
  | { kind: 'signed'; expires: Date }
  | { kind: 'caller'; caller: Caller | undefined }
  /** Who makes a URL for others needs the policies' word also where the bucket is public now: it may not stay so. */
  | { kind: 'signer'; caller: Caller }

interface Found {
  object: ObjectRow
  /** Anybody may read it. */
  isPublic: boolean
}

/** The object, or the error that tells this reader no more than he may know. Of its versions there is the newest alone. */
export async function findObject(
  storage: Storage,
  place: Place,
  reader: Reader,
  version?: string | null,
): Promise<Found> {
  const { found, seen } = await look(storage, place, reader)
  if (!found) throw new StorageError('NoSuchBucket')
  const isPublic = found.bucket.public
  const isOpen = reader.kind === 'signed' || (isPublic && reader.kind !== 'signer')
  if (!isOpen && (reader.kind === 'anybody' || !reader.caller)) throw new StorageError('NoSuchBucket')
  const object = isOpen ? found.object : seen
  if (!object || (version && object.version !== version)) throw new StorageError('NoSuchKey')
  return { object, isPublic }
}

/**
 * One round trip: the facts as the server knows them, and the row as the caller's policies let him see it. It is his own that he is
 * answered with: of the server's, read before it, nobody knows that he may see it.
 */
async function look(
  storage: Storage,
  place: Place,
  reader: Reader,
): Promise<{ found?: FoundObject; seen?: ObjectRow | null }> {
  const caller = 'caller' in reader ? reader.caller : undefined
  // No policy binds this role, so there is nothing to ask.
  if (!caller || caller.role === 'service_role') {
    const [[row] = []] = await asServer(storage, [readObject(place)])
    const found = row as unknown as FoundObject | undefined
    return { found, seen: caller && found?.object }
  }
  const facts = readObject(place, { onlyPublic: true })
  const seen = reader.kind === 'signer' ? seeObject(place) : seeIfClosed(place)
  const asked = await asCaller(storage, caller, [seen], [facts]).catch(async (error) => {
    // Where the bucket is public nobody wants to know what the policies say, nor that they fail.
    const [[row] = []] = error instanceof SqlError && reader.kind === 'caller' ? await asServer(storage, [facts]) : []
    if (!(row as unknown as FoundObject | undefined)?.bucket.public) throw error
    return [[row as Row]]
  })
  const [[found] = [], [object] = []] = asked
  return { found: found as unknown as FoundObject, seen: object as unknown as ObjectRow }
}

export function describe(object: ObjectRow): Described {
  const { size, mimetype, cacheControl, eTag, lastModified, xRobotsTag } = object.metadata ?? {}
  return {
    name: object.name,
    size: typeof size === 'number' && Number.isSafeInteger(size) && size >= 0 ? size : 0,
    mimetype: headerOr('application/octet-stream', mimetype),
    cacheControl: headerOr('no-cache', cacheControl),
    etag: headerOr(`"${object.version ?? object.id}"`, eTag),
    lastModified: timeOf(lastModified) ?? timeOf(object.updated_at) ?? new Date(0),
    xRobotsTag: headerOr('none', xRobotsTag),
  }
}

const headerOr = (fallback: string, value: unknown): string =>
  typeof value === 'string' && /^[\x20-\x7e]{1,1000}$/.test(value) ? value : fallback

function timeOf(value: unknown): Date | undefined {
  const time = new Date(typeof value === 'string' ? value : Number.NaN)
  return Number.isNaN(time.getTime()) ? undefined : time
}

/** Between finding the row and reading the bytes, somebody may replace them: then the new ones are found. */
const TRIES = 3

/** Answers with the bytes, or the part of them that was asked for. */
export async function serveObject(c: StorageContext, place: Place, reader: Reader): Promise<Response> {
  const isHead = c.req.method === 'HEAD'
  // A head describes the object, whatever is asked of its bytes.
  const conditions = isHead ? new Headers() : c.req.raw.headers
  for (let tries = 1; ; tries++) {
    const { object, isPublic } = await findObject(c.var, place, reader, c.req.query('versionId'))
    const described = describe(object)
    const plan = planReply(conditions, described, {
      download: c.req.query('download'),
      isPublic,
      ...(reader.kind === 'signed' && { expires: reader.expires }),
    })
    if (plan.kind === 'not modified') return new Response(null, { status: 304, headers: plan.headers })
    if (isHead) return new Response(null, { headers: plan.headers })
    const range = plan.kind === 'part' ? plan.range : undefined
    const body = await bytesOf(c.var, object.version, { size: described.size, range })
    if (body) return new Response(body, { status: plan.kind === 'part' ? 206 : 200, headers: plan.headers })
    if (tries === TRIES) {
      const { bucket_id: bucket, name: key, version } = object
      c.var.ctx.log.error('storage_bytes_missing', { project: c.var.project.ref, bucket, key, version })
      throw new StorageError('NoSuchKey', 'The resource was not found')
    }
  }
}

interface Wanted {
  size: number
  range: Range | undefined
}

/** Undefined also where they are not as long as the row says, since its owner can write anything there. */
async function bytesOf(storage: Storage, version: string | null, { size, range }: Wanted) {
  const key = storedBlobKey(storage.project.ref, version)
  if (!key) return undefined
  const { offset, length } = range ?? { offset: 0, length: size }
  const cached = cachedBytes(key)
  if (cached) return cached.length === size ? cached.subarray(offset, offset + length) : undefined
  const get = (part?: Range) =>
    whileBucketAnswers(storage, part?.length ?? size, openStore(storage.ctx).get(key, part).catch(nothingThere))
  const found = length > PIECE_BYTES ? await readPieces({ offset, length }, get) : await get(range)
  if (found?.size !== length || found.sizeOfAll !== size) {
    await found?.body?.cancel()
    return undefined
  }
  if (range || !isCacheable(length)) return found.body
  const bytes = new Uint8Array(await new Response(found.body).arrayBuffer())
  if (bytes.length !== length) return undefined
  keepBytes(key, bytes)
  return bytes
}

function nothingThere(error: unknown): undefined {
  if (!(error instanceof BucketError && error.code === 'InvalidRange')) throw error
}

export const userMetadataOf = (json: string | null | undefined): unknown => parseExact(json ?? 'null')

/** What `info` says of an object. */
export function infoOf(object: ObjectRow) {
  const { size, mimetype, cacheControl, etag, lastModified } = describe(object)
  return {
    id: object.id,
    name: object.name,
    version: object.version,
    bucket_id: object.bucket_id,
    size,
    content_type: mimetype,
    cache_control: cacheControl,
    etag,
    metadata: userMetadataOf(object.user_metadata) ?? {},
    last_modified: object.updated_at ?? lastModified.toISOString(),
    created_at: object.created_at,
  }
}

/** The specification names every field that an object has: nothing else is shown of it. */
export const shown = (object: ObjectRow) => ({
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

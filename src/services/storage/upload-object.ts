import type { Row, Statement } from '../../engine/engine.ts'
import { SqlError } from '../../engine/engine-errors.ts'
import { BodyStalled, readChunks } from '../../platform/blobs/chunk-reader.ts'
import { discardBody } from '../../platform/blobs/discard-body.ts'
import { MemoryExhausted } from '../../platform/blobs/memory-budget.ts'
import { BLOB_BYTES_MAX, BlobInterrupted, type Stored } from '../../platform/blobs/put.ts'
import { BlobIncomplete, BlobTooLarge, openStore } from '../../platform/blobs/store.ts'
import { newTimedId } from '../../platform/db/id.ts'
import type { Claims } from '../../platform/jwt/credential.ts'
import { blobKey } from './blob-key.ts'
import { isBucketReachable, waitWhileBucketResponds } from './bucket-timeout.ts'
import { asCaller, asServer, type Caller, type Storage } from './database.ts'
import { type Description, type IncomingUpload, readIncoming, type UploadRequest } from './incoming-upload.ts'
import { assertRules, getBucket } from './statements/buckets.ts'
import type { FoundObject, NewObject, ObjectRow, Place } from './statements/object-rows.ts'
import { canWrite, insertObject, readObject, upsertObject } from './statements/objects.ts'
import { isTokenUsed, useToken } from './statements/tokens.ts'
import { uuidOrNull } from './statements/values.ts'
import {
  isBucketKeyViolated,
  isNameTaken,
  isPolicyViolated,
  isRefused,
  RowSkipped,
  StorageError,
  throwAs,
} from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'
import { boundsOf, checkFits, type Rules } from './upload-bounds.ts'
import { cachePermission, clearPermission, permittedRules, type RequestedUpload } from './upload-permission-cache.ts'

/**
 * Uploads an object as the caller. Policies are checked before any byte is read, and again when the row is written. A small upload
 * after a recent one skips the first check.
 */
export async function upload(request: UploadRequest, upsert: boolean) {
  const { storage, caller, place } = request
  const incoming = await readIncoming(request)
  return discardBodyOnError(incoming, async () => {
    const requested = { storage, caller, place, upsert, isSizeKnown: incoming.size !== undefined }
    const permitted = permittedRules(requested, incoming)
    const rules = permitted ?? (await authorizeUpload(storage, caller, place, { upsert, ...incoming }))
    const uploaded = await store(storage, rules, place, incoming)
    const row = await (permitted
      ? writePermitted(requested, uploaded, permitted)
      : writeAuthorized(requested, uploaded))
    if (!permitted) cachePermission(requested, rules)
    return { Key: `${place.bucketId}/${place.name}`, Id: row.id }
  })
}

const writeAuthorized = ({ storage, caller, place, upsert }: RequestedUpload, uploaded: UploadedBytes) =>
  write(storage, place, uploaded, { upsert, caller, ownerId: caller.userId ?? null })

/** Writes without prior authorization. After a refusal it authorizes, so that the caller gets the same error as without the cache. */
async function writePermitted(upload: RequestedUpload, uploaded: UploadedBytes, rules: Rules): Promise<ObjectRow> {
  const { storage, caller, place, upsert } = upload
  try {
    const serverStatements = [assertRules(rules)]
    return await writeRow(storage, place, uploaded, {
      upsert,
      caller,
      ownerId: caller.userId ?? null,
      serverStatements,
    })
  } catch (error) {
    clearPermission(upload)
    if (!isRefused(error)) throw error
    try {
      const { size } = uploaded
      checkFits(
        storage,
        await authorizeUpload(storage, caller, place, { upsert, description: uploaded, size }),
        place.name,
        uploaded,
      )
    } catch (refusal) {
      removeBytes(storage, blobKey(storage.project.ref, uploaded.version))
      throw refusal
    }
    return writeAuthorized(upload, uploaded)
  }
}

/** Reads and drops the body that a refused caller still sends. Otherwise the connection is reset before the caller reads the reply. */
async function discardBodyOnError<T>({ body }: IncomingUpload, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (body && !body.locked) discardBody(readChunks(body))
    throw error
  }
}

/** Uploads an object with the token of a signed URL, which permits this one upload. */
export async function uploadSigned(request: UploadRequest & { claims: Claims }) {
  const { storage, caller, place, claims } = request
  const incoming = await readIncoming(request)
  return discardBodyOnError(incoming, async () => {
    const { bucket, writer } = await authorizeSignedUpload(storage, place, claims)
    const uploaded = await store(storage, bucket, place, incoming)
    await write(storage, place, uploaded, { ...writer, caller })
    return { Key: `${place.bucketId}/${place.name}` }
  })
}

/** Authorizes an upload by its token. Refuses a used token, and an existing object without upsert. One round trip. */
export async function authorizeSignedUpload(storage: Storage, place: Place, claims: Claims) {
  const { owner } = claims
  const upsert = claims.upsert === true
  const id = tokenIdOf(claims)
  const token = id === null ? undefined : { id, expires: expiryOf(claims) }
  const [[found] = [], [usage] = []] = await asServer(storage, [
    readObject(place),
    ...(token ? [isTokenUsed(token)] : []),
  ])
  const { bucket, object } = requireBucket(found)
  if (object && !upsert) throw new StorageError('KeyAlreadyExists')
  if (usage?.used) throw new StorageError('InvalidSignature', TOKEN_USED)
  return { bucket, writer: { upsert, ownerId: typeof owner === 'string' ? owner : null, token } }
}

const TOKEN_USED = 'The token was used before: sign a new URL'

/** The id that permits one upload. A token that the project's own server signed may have none. */
export const tokenIdOf = ({ jti }: Claims): string | null => uuidOrNull(typeof jti === 'string' ? jti : null)

const NEVER = Date.UTC(9999, 0)

/** Tokens that the project's own server signed may have no `exp`, or one outside the range of dates. */
export const expiryOf = ({ exp }: Claims): Date => new Date(Math.min(Number(exp ?? NEVER) * 1000, NEVER))

export interface Intent {
  upsert: boolean
  /** The properties that are known before the bytes. */
  description?: Partial<Description>
  size?: number | undefined
  /** Upper bound of the size, where that is not known. */
  sizeMax?: number | undefined
}

/** Like `checkPolicies`, but a missing bucket is reported even to a caller whom the policies refuse, after a second round trip. */
export async function authorizeUpload(storage: Storage, caller: Caller, place: Place, intent: Intent): Promise<Rules> {
  try {
    return await checkPolicies(storage, caller, place, intent)
  } catch (error) {
    if (isPolicyViolated(error)) {
      const [[bucket] = []] = await asServer(storage, [getBucket(place.bucketId)])
      requireBucket(bucket)
    }
    throw error
  }
}

/** Authorizes an upload by the policies and returns the limits of the bucket. Refuses an existing object without upsert. One round trip. */
export async function checkPolicies(storage: Storage, caller: Caller, place: Place, intent: Intent): Promise<Rules> {
  const { upsert, description, size, sizeMax } = intent
  if (caller.role === 'service_role') {
    const [[found] = []] = await asServer(storage, [readObject(place)])
    const { bucket, object } = requireBucket(found)
    if (object && !upsert) throw new StorageError('KeyAlreadyExists')
    return bucket
  }
  const version = newTimedId(storage.ctx.now())
  // Policies know the length of the request's body as `contentLength`. When the row is written, it is the size.
  const metadata = { size, contentLength: size ?? sizeMax, mimetype: description?.contentType }
  const object: NewObject = {
    ...{ ...place, id: version, version, metadata },
    ...{ ownerId: caller.userId ?? null, userMetadata: description?.userMetadata ?? null },
  }
  const [[found] = [], [check] = []] = await asCaller(
    storage,
    caller,
    [canWrite(object, { upsert })],
    [readObject(place)],
  ).catch(throwAs('NoSuchBucket', isBucketKeyViolated))
  if (check?.outcome === 'exists') throw new StorageError('KeyAlreadyExists')
  return requireBucket(found).bucket
}

/** Rethrows the error of a missing bucket as `RelatedResourceNotFound`, which copies and the signing of upload URLs answer. */
export const throwRelatedNotFound = throwAs(
  'RelatedResourceNotFound',
  (error) => error instanceof StorageError && error.code === 'NoSuchBucket',
)

function requireBucket(found: Row | undefined): FoundObject {
  if (!found) throw new StorageError('NoSuchBucket')
  return found as unknown as FoundObject
}

export interface UploadedBytes extends Description, Stored {
  version: string
}

/** Streams the bytes to a new version, to which no row points yet. */
async function store(
  storage: Storage,
  bucket: Rules,
  { name }: Place,
  incoming: IncomingUpload,
): Promise<UploadedBytes> {
  const { ctx, project } = storage
  const { sizeMax, checkType } = boundsOf(storage, bucket, name)
  checkType(incoming.description)
  const version = newTimedId(ctx.now())
  const key = blobKey(project.ref, version)
  const stored = await waitWhileBucketResponds(storage, incoming.size ?? 0, put(storage, key, incoming, sizeMax))
  try {
    const description = incoming.complete()
    checkType(description)
    return { ...description, ...stored, version }
  } catch (error) {
    removeBytes(storage, key)
    throw error
  }
}

async function put(
  storage: Storage,
  key: string,
  { body, size, sizeMax: bodyMax = Number.POSITIVE_INFINITY, description }: IncomingUpload,
  sizeMax: number,
): Promise<Stored> {
  const { contentType } = description
  if (size !== undefined && size > sizeMax) throw new StorageError('EntityTooLarge')
  if (size !== undefined && size > BLOB_BYTES_MAX) throw new StorageError('EntityTooLarge', TOO_LARGE_TO_STORE)
  const blobs = openStore(storage.ctx)
  try {
    if (!body) return await blobs.put(key, new Uint8Array(), { size: 0, contentType })
    if (size === undefined)
      return await blobs.putUnknown(key, body, { sizeMax: Math.min(sizeMax, bodyMax), contentType })
    return await blobs.put(key, body, { size, contentType })
  } catch (error) {
    if (error instanceof BlobTooLarge) throw new StorageError('EntityTooLarge')
    if (error instanceof MemoryExhausted)
      throw new StorageError('SlowDown', 'Too many large uploads at once: try again shortly')
    if (error instanceof BlobInterrupted && !(await isBucketReachable(storage))) {
      throw new StorageError('BytesUnavailable', undefined, { cause: error })
    }
    if (error instanceof BlobInterrupted || error instanceof BodyStalled) throw new StorageError('RequestAborted')
    if (error instanceof BlobIncomplete)
      throw new StorageError('InvalidRequest', 'Invalid Content-Length: must be the length of the body')
    throw error
  }
}

const TOO_LARGE_TO_STORE = `The object exceeded the maximum allowed size: an object can have at most ${BLOB_BYTES_MAX} bytes`

interface Writer {
  upsert: boolean
  ownerId: string | null
  /** The caller to whom policies apply. */
  caller: Caller
  /** The token that permits this write, once. */
  token?: { id: string; expires: Date } | undefined
  /** Run as the server in the same transaction, before the row is written. */
  serverStatements?: readonly Statement[]
}

/** Points the row at the new bytes. Of several concurrent writers without upsert exactly one succeeds. */
export async function write(
  storage: Storage,
  place: Place,
  uploaded: UploadedBytes,
  writer: Writer,
): Promise<ObjectRow> {
  try {
    return await writeRow(storage, place, uploaded, writer)
  } catch (error) {
    // After any other failure the row may have been written, so the bytes are left to the sweep.
    if (isRefused(error)) removeBytes(storage, blobKey(storage.project.ref, uploaded.version))
    throw toStorageError(error)
  }
}

/** Like `write`, but a failure leaves the bytes in place. */
export async function writeRow(
  storage: Storage,
  place: Place,
  uploaded: UploadedBytes,
  writer: Writer,
): Promise<ObjectRow> {
  const { version, size, etag, contentType, cacheControl, xRobotsTag, contentEncoding, userMetadata } = uploaded
  const { upsert, caller, ownerId, token, serverStatements = [] } = writer
  const metadata = {
    eTag: etag,
    size,
    mimetype: contentType,
    cacheControl,
    lastModified: storage.ctx.now().toISOString(),
    contentLength: size,
    httpStatusCode: 200,
    ...(xRobotsTag && { xRobotsTag }),
    ...(contentEncoding && { contentEncoding }),
  }
  const object: NewObject = { ...place, id: newTimedId(storage.ctx.now()), version, metadata, ownerId, userMetadata }
  const before = [...serverStatements, ...(token ? [useToken(token)] : [])]
  const rows = await asCaller(storage, caller, [upsert ? upsertObject(object) : insertObject(object)], before)
  const row = rows.at(-1)?.[0] as ObjectRow | undefined
  // The trigger may have used the bytes elsewhere, so they are left to the sweep.
  if (!row) throw new RowSkipped()
  // A replaced row keeps its own id.
  if (row.id !== object.id) sweepSoon(storage)
  return row
}

/** Converts errors of Postgres that have a code of their own in this API. */
export function toStorageError(error: unknown): unknown {
  if (!(error instanceof SqlError)) return error
  if (error.constraint === 'used_tokens_pkey') return new StorageError('InvalidSignature', TOKEN_USED)
  if (isNameTaken(error)) return new StorageError('KeyAlreadyExists')
  return isBucketKeyViolated(error) ? new StorageError('NoSuchBucket') : error
}

export function removeBytes({ ctx }: Storage, key: string): void {
  const removal = openStore(ctx).remove([key])
  ctx.waitUntil(removal.catch((error) => ctx.log.error('storage_bytes_not_removed', { key, error: String(error) })))
}

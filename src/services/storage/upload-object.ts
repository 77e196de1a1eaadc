import { type Row, SqlError, type Statement } from '../../engine/engine.ts'
import { BodyStalled, readChunks } from '../../platform/blobs/chunk-reader.ts'
import { discardBody } from '../../platform/blobs/discard-body.ts'
import { MemoryExhausted } from '../../platform/blobs/memory-budget.ts'
import { BLOB_BYTES_MAX, BlobInterrupted, type Stored } from '../../platform/blobs/put.ts'
import { BlobIncomplete, BlobTooLarge, openStore } from '../../platform/blobs/store.ts'
import { newTimedId } from '../../platform/db/id.ts'
import type { Claims } from '../../platform/jwt/credential.ts'
import { blobKey } from './blob-key.ts'
import { asCaller, asServer, type Caller } from './database.ts'
import { type Description, type Incoming, readIncoming } from './incoming-upload.ts'
import { callerOf, type Storage, type StorageContext, serviceOf } from './request.ts'
import { isBucketThere, whileBucketAnswers } from './retry-until-ready.ts'
import { hasRules } from './statements/buckets.ts'
import type { FoundObject, NewObject, ObjectRow, Place } from './statements/object-rows.ts'
import { canWrite, insertObject, readObject, upsertObject } from './statements/objects.ts'
import { isTokenUsed, useToken } from './statements/tokens.ts'
import { isRefused, isTaken, isWithoutBucket, LeftOut, StorageError } from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'
import { boundsOf, checkFits, type Rules } from './upload-bounds.ts'
import { forgetLetIn, noteLetIn, rulesForLetIn, type Upload } from './upload-permission-cache.ts'

/**
 * With the caller's token: asked before a byte is read, and decided when the row is written. Who was let in lately sends a few bytes
 * without being asked first.
 */
export async function upload(c: StorageContext, place: Place, { upsert }: { upsert: boolean }) {
  const caller = await callerOf(c, c.req.method === 'PUT' ? 'storage.object.upload_update' : 'storage.object.upload')
  const incoming = await readIncoming(c.req.raw)
  return answering(incoming, async () => {
    const intent = { storage: c.var, caller, place, upsert, isSizeTold: incoming.size !== undefined }
    const known = rulesForLetIn(intent, incoming)
    const rules = known ?? (await mayUpload(c.var, caller, place, { upsert, ...incoming }))
    const written = await store(c.var, rules, place, incoming)
    const row = await (known ? writeUnasked(intent, written, known) : writeAsked(intent, written))
    if (!known) noteLetIn(intent, rules)
    return c.json({ Key: `${place.bucketId}/${place.name}`, Id: row.id })
  })
}

const writeAsked = ({ storage, caller, place, upsert }: Upload, written: Written) =>
  write(storage, place, written, { upsert, caller, ownerId: caller.userId ?? null })

/** Where it fails, the caller is told what he would have been told before, and so learns of rules that have changed. */
async function writeUnasked(upload: Upload, written: Written, rules: Rules): Promise<ObjectRow> {
  const { storage, caller, place, upsert } = upload
  try {
    const noting = [hasRules(rules)]
    return await writeRow(storage, place, written, { upsert, caller, ownerId: caller.userId ?? null, noting })
  } catch (error) {
    forgetLetIn(upload)
    if (!isRefused(error)) throw error
    try {
      const { size } = written
      checkFits(
        storage,
        await mayUpload(storage, caller, place, { upsert, description: written, size }),
        place.name,
        written,
      )
    } catch (refusal) {
      removeBytes(storage, blobKey(storage.project.ref, written.version))
      throw refusal
    }
    return writeAsked(upload, written)
  }
}

/** Drops what a refused caller still sends: the connection would otherwise be reset before the answer is read. */
async function answering<T>({ body }: Incoming, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (body && !body.locked) discardBody(readChunks(body))
    throw error
  }
}

/** With a token that was made for this one upload by somebody who may. */
export async function uploadSigned(c: StorageContext, place: Place, claims: Claims) {
  const incoming = await readIncoming(c.req.raw)
  return answering(incoming, async () => {
    const { bucket, writer } = await mayUploadSigned(c.var, place, claims)
    const written = await store(c.var, bucket, place, incoming)
    await write(c.var, place, written, { ...writer, caller: serviceOf(c, 'storage.object.upload_signed') })
    return c.json({ Key: `${place.bucketId}/${place.name}` })
  })
}

/** What the token allows: refuses what is there already, and a token that was used. One round trip. */
export async function mayUploadSigned(storage: Storage, place: Place, claims: Claims) {
  const { owner, jti } = claims
  const upsert = claims.upsert === true
  const token = typeof jti === 'string' && UUID.test(jti) ? { id: jti, expires: expiryOf(claims) } : undefined
  const [[found] = [], [usage] = []] = await asServer(storage, [
    readObject(place),
    ...(token ? [isTokenUsed(token)] : []),
  ])
  const { bucket, object } = existing(found)
  if (object && !upsert) throw new StorageError('KeyAlreadyExists')
  if (usage?.used) throw new StorageError('InvalidSignature', TOKEN_USED)
  return { bucket, writer: { upsert, ownerId: typeof owner === 'string' ? owner : null, token } }
}

const TOKEN_USED = 'The token was used before'
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

const NEVER = Date.UTC(9999, 0)

/** Tokens that the project signed itself may have none, or one beyond any calendar. */
export const expiryOf = ({ exp }: Claims): Date => new Date(Math.min(Number(exp ?? NEVER) * 1000, NEVER))

export interface Intent {
  upsert: boolean
  /** As far as it is known before the bytes. */
  description?: Partial<Description>
  size?: number | undefined
}

/** Refuses what the policies would refuse, and what is there already; returns the rules of the bucket. One round trip. */
export async function mayUpload(storage: Storage, caller: Caller, place: Place, intent: Intent): Promise<Rules> {
  const { upsert, description, size } = intent
  if (caller.role === 'service_role') {
    const [[found] = []] = await asServer(storage, [readObject(place)])
    const { bucket, object } = existing(found)
    if (object && !upsert) throw new StorageError('KeyAlreadyExists')
    return bucket
  }
  const version = newTimedId(storage.ctx.now())
  const metadata = { ...(size !== undefined && { size, contentLength: size }), mimetype: description?.contentType }
  const wanted: NewObject = {
    ...{ ...place, id: version, version, metadata },
    ...{ ownerId: caller.userId ?? null, userMetadata: description?.userMetadata ?? null },
  }
  const [[found] = [], [answer] = []] = await asCaller(
    storage,
    caller,
    [canWrite(wanted, { upsert })],
    [readObject(place)],
  )
    // Where it is missing its policies have nothing to say.
    .catch((error) => {
      throw isWithoutBucket(error) ? new StorageError('NoSuchBucket') : error
    })
  if (answer?.outcome === 'exists') throw new StorageError('KeyAlreadyExists')
  return existing(found).bucket
}

/** Where a bucket is not what was asked for, but what the request needs. */
export function related(error: unknown): never {
  if (error instanceof StorageError && error.code === 'NoSuchBucket') throw new StorageError('RelatedResourceNotFound')
  throw error
}

function existing(found: Row | undefined): FoundObject {
  if (!found) throw new StorageError('NoSuchBucket')
  return found as unknown as FoundObject
}

export interface Written extends Description, Stored {
  version: string
}

/** Streams the bytes under a version of their own, which nothing points at yet. */
async function store(storage: Storage, bucket: Rules, { name }: Place, incoming: Incoming): Promise<Written> {
  const { ctx, project } = storage
  const { sizeMax, check } = boundsOf(storage, bucket, name)
  check(incoming.description)
  const version = newTimedId(ctx.now())
  const key = blobKey(project.ref, version)
  const stored = await whileBucketAnswers(storage, incoming.size ?? 0, put(storage, key, incoming, sizeMax))
  try {
    const description = incoming.complete()
    check(description)
    return { ...description, ...stored, version }
  } catch (error) {
    removeBytes(storage, key)
    throw error
  }
}

async function put(
  storage: Storage,
  key: string,
  { body, size, sizeMax: comingMax = Number.POSITIVE_INFINITY, description }: Incoming,
  sizeMax: number,
): Promise<Stored> {
  const { contentType } = description
  if (size !== undefined && size > sizeMax) throw new StorageError('EntityTooLarge')
  if (size !== undefined && size > BLOB_BYTES_MAX) throw new StorageError('EntityTooLarge', TOO_LARGE_TO_STORE)
  const blobs = openStore(storage.ctx)
  try {
    if (!body) return await blobs.put(key, new Uint8Array(), { size: 0, contentType })
    if (size === undefined)
      return await blobs.putUnknown(key, body, { sizeMax: Math.min(sizeMax, comingMax), contentType })
    return await blobs.put(key, body, { size, contentType })
  } catch (error) {
    if (error instanceof BlobTooLarge) throw new StorageError('EntityTooLarge')
    if (error instanceof MemoryExhausted)
      throw new StorageError('SlowDown', 'Too many large uploads at once: try again')
    if (error instanceof BlobInterrupted && !(await isBucketThere(storage))) {
      throw new StorageError('BytesUnavailable', undefined, { cause: error })
    }
    if (error instanceof BlobInterrupted || error instanceof BodyStalled) throw new StorageError('RequestAborted')
    if (error instanceof BlobIncomplete) throw new StorageError('InvalidRequest', 'The body is not as long as it said')
    throw error
  }
}

const TOO_LARGE_TO_STORE = `The object exceeded the maximum allowed size: no more than ${BLOB_BYTES_MAX} bytes can be stored`

interface Writer {
  upsert: boolean
  ownerId: string | null
  /** Whose policies decide. */
  caller: Caller
  /** That permits it, once. */
  token?: { id: string; expires: Date } | undefined
  /** What the server notes in the same transaction. */
  noting?: readonly Statement[]
}

/** Points the row at the new bytes: of several writers without upsert exactly one succeeds. */
export async function write(storage: Storage, place: Place, written: Written, writer: Writer): Promise<ObjectRow> {
  try {
    return await writeRow(storage, place, written, writer)
  } catch (error) {
    // After any other failure the row may stand all the same, and a sweep decides.
    if (isRefused(error)) removeBytes(storage, blobKey(storage.project.ref, written.version))
    throw told(error)
  }
}

/** The same, but for the bytes, which stay where it fails. */
export async function writeRow(storage: Storage, place: Place, written: Written, writer: Writer): Promise<ObjectRow> {
  const { version, size, etag, contentType, cacheControl, xRobotsTag, userMetadata } = written
  const { upsert, caller, ownerId, token, noting = [] } = writer
  const metadata = {
    eTag: etag,
    size,
    mimetype: contentType,
    cacheControl,
    lastModified: storage.ctx.now().toISOString(),
    contentLength: size,
    httpStatusCode: 200,
    ...(xRobotsTag && { xRobotsTag }),
  }
  const object: NewObject = { ...place, id: newTimedId(storage.ctx.now()), version, metadata, ownerId, userMetadata }
  const before = [...noting, ...(token ? [useToken(token)] : [])]
  const rows = await asCaller(storage, caller, [upsert ? upsertObject(object) : insertObject(object)], before)
  const row = rows.at(-1)?.[0] as ObjectRow | undefined
  if (upsert) sweepSoon(storage)
  // What the trigger did instead may point at the bytes: a sweep decides.
  if (!row) throw new LeftOut()
  return row
}

/** What Postgres said, as clients know it. */
export function told(error: unknown): unknown {
  if (!(error instanceof SqlError)) return error
  if (error.constraint === 'used_tokens_pkey') return new StorageError('InvalidSignature', TOKEN_USED)
  if (isTaken(error)) return new StorageError('KeyAlreadyExists')
  return isWithoutBucket(error) ? new StorageError('NoSuchBucket') : error
}

export function removeBytes({ ctx }: Storage, key: string): void {
  const removal = openStore(ctx).remove([key])
  ctx.waitUntil(removal.catch((error) => ctx.log.error('storage_bytes_left', { key, error: String(error) })))
}

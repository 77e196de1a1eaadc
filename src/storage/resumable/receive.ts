import { MemoryTaken } from '../../blobs/budget.ts'
import { BodyBroken, BodyStalled } from '../../blobs/chunks.ts'
import { type HeldParts, holdParts, ownerOf } from '../../blobs/held-parts.ts'
import { openStore, PartsGone, type SentPart, type Stored } from '../../blobs/store.ts'
import { newTimedId } from '../../db/id.ts'
import { SqlError } from '../../engine/engine.ts'
import { blobKey } from '../blob-key.ts'
import { asServer, type Caller } from '../database.ts'
import { StorageError, type StorageErrorCode } from '../error.ts'
import type { Description } from '../incoming.ts'
import { whileBucketAnswers } from '../patience.ts'
import type { Storage } from '../request.ts'
import { endUpload, forgetUploads, notePart, noteTail, sentParts, type Upload } from '../statements/resumable.ts'
import { write } from '../upload.ts'

/** An upload that this request has taken: it alone may note how far it has come. */
interface Session {
  storage: Storage
  upload: Upload
  lease: string
  /** Whose policies decide when the object is written. */
  caller: Caller
}

type Bytes = Uint8Array<ArrayBuffer>
const NOTHING = new Uint8Array()
const NO_BODY = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.close() })

/**
 * Takes the bytes of one request, in parts of one length, each noted once it is in the bucket; what is left and fills none is kept beside them.
 * With the last byte the object gets its row. Returns how far the upload has come.
 */
export async function receive(session: Session, body: ReadableStream<Uint8Array> | null): Promise<number> {
  const { storage, upload } = session
  // What was left before is in memory beside the part that it begins.
  const bytes = upload.part_bytes + upload.tail_bytes
  const parts = holdParts(body ?? NO_BODY(), { bytes, owner: ownerOf(keyOf(session)) })
  const work = receiveParts(session, parts)
  // A caller that goes away would else end the request before what it began is noted.
  storage.ctx.waitUntil(work.catch(() => {}))
  try {
    return await whileBucketAnswers(storage, bytes, work)
  } catch (error) {
    if (error instanceof StorageError && error.code !== 'BytesUnavailable') await parts.drop()
    else void parts.cancel(error).catch(() => {})
    if (error instanceof MemoryTaken) throw new StorageError('SlowDown', 'Too many large uploads at once: try again')
    if (error instanceof BodyBroken || error instanceof BodyStalled) throw new StorageError('RequestAborted')
    throw error
  } finally {
    parts.release()
  }
}

async function receiveParts(session: Session, parts: HeldParts): Promise<number> {
  const { upload } = session
  const { part_bytes, size, size_max } = upload
  let { received, next_part: n, upload_id: uploadId } = upload
  let tail = await readTail(session)
  for (;;) {
    const bytes = joined(tail, await parts.next(Math.min(part_bytes - tail.length, (size ?? size_max) - received)))
    received += bytes.length - tail.length
    if (received === (size ?? size_max) && !(await parts.ended())) throw new StorageError('EntityTooLarge')
    if (received === size) {
      await complete(session, { n, uploadId, bytes })
      return received
    }
    if (bytes.length < part_bytes) {
      if (bytes.length > tail.length) await keepTail(session, bytes, received)
      return received
    }
    uploadId ??= await openStore(session.storage.ctx).parts.begin(keyOf(session), descriptionOf(upload))
    n = await sendPart(session, { n, uploadId, bytes }, received)
    tail = NOTHING
  }
}

function joined(first: Bytes, then: Bytes): Bytes {
  if (first.length === 0) return then
  const both = new Uint8Array(first.length + then.length)
  both.set(first)
  both.set(then, first.length)
  return both
}

const keyOf = ({ storage, upload }: Pick<Session, 'storage' | 'upload'>) => blobKey(storage.project.ref, upload.id)
const descriptionOf = ({ description }: Upload): Description => JSON.parse(description)

async function readTail({ storage, upload }: Session): Promise<Bytes> {
  if (!upload.tail) return NOTHING
  const found = await openStore(storage.ctx).get(blobKey(storage.project.ref, upload.tail))
  const bytes = found ? new Uint8Array(await new Response(found.body).arrayBuffer()) : NOTHING
  if (bytes.length !== upload.tail_bytes) throw new StorageError('NoSuchUpload')
  return bytes
}

/** Under a version of its own: whatever breaks off, the row names bytes that are there. */
async function keepTail({ storage, upload, lease }: Session, bytes: Bytes, received: number): Promise<void> {
  const version = newTimedId(storage.ctx.now())
  await openStore(storage.ctx).put(blobKey(storage.project.ref, version), bytes, { size: bytes.length })
  const tail = { version, bytes: bytes.length, received }
  const [[noted] = []] = await asServer(storage, [noteTail({ id: upload.id, lease }, tail)])
  if (!noted) throw new StorageError('OffsetConflict')
  removeTail(storage, upload)
}

/** What is not removed now, a sweep removes: no row points at it. */
function removeTail({ ctx, project }: Storage, { tail }: Upload): void {
  if (!tail) return
  const removal = openStore(ctx).remove([blobKey(project.ref, tail)])
  ctx.waitUntil(removal.catch(() => {}))
}

interface Part {
  n: number
  uploadId: string
  bytes: Bytes
}

/** What S3 takes. */
const PART_NUMBER_MAX = 10_000

/** Returns the number of the next one. */
async function sendPart(session: Session, { n, uploadId, bytes }: Part, received: number): Promise<number> {
  const { storage, upload, lease } = session
  if (n > PART_NUMBER_MAX) throw new StorageError('EntityTooLarge', 'The upload was interrupted too often')
  const etag = await openStore(storage.ctx)
    .parts.put({ key: keyOf(session), uploadId }, n, bytes)
    .catch(refuseGone)
  const part = { n, etag, uploadId, received }
  const [[noted] = []] = await asServer(storage, [notePart({ id: upload.id, lease }, part)])
  if (!noted) throw new StorageError('OffsetConflict')
  if (received - bytes.length < upload.received) removeTail(storage, upload)
  return Number(noted.next_part)
}

function refuseGone(error: unknown): never {
  throw error instanceof PartsGone ? new StorageError('NoSuchUpload') : error
}

type LastPart = Omit<Part, 'uploadId'> & { uploadId: string | null }

/** Puts the bytes together, and points the row of the object at them in the transaction that ends the upload. */
async function complete(session: Session, last: LastPart): Promise<void> {
  const { storage, upload, lease, caller } = session
  const { id, bucket_id: bucketId, name, token_id, token_expires_at, upsert, owner_id: ownerId } = upload
  const stored = await storeLast(session, last)
  const token = token_id && token_expires_at ? { id: token_id, expires: new Date(token_expires_at) } : undefined
  const writer = { upsert, ownerId, caller, token, noting: [endUpload({ id, lease })] }
  try {
    await write(storage, { bucketId, name }, { ...descriptionOf(upload), ...stored, version: id }, writer)
  } catch (error) {
    if (isRefused(error)) await asServer(storage, [forgetUploads([id])]).catch(() => {})
    throw error
  }
  removeTail(storage, upload)
}

const REFUSALS: readonly StorageErrorCode[] = ['KeyAlreadyExists', 'NoSuchBucket', 'InvalidSignature']

/** Its bytes are removed then, and nothing can go on. */
const isRefused = (error: unknown): boolean =>
  error instanceof SqlError || (error instanceof StorageError && REFUSALS.includes(error.code))

async function storeLast(session: Session, { n, uploadId, bytes }: LastPart): Promise<Stored> {
  const { storage, upload } = session
  const blobs = openStore(storage.ctx)
  const key = keyOf(session)
  if (!uploadId) return blobs.put(key, bytes, { size: bytes.length, contentType: descriptionOf(upload).contentType })
  try {
    const sent = bytes.length > 0 ? [{ n, etag: await blobs.parts.put({ key, uploadId }, n, bytes) }] : []
    const [before = []] = await asServer(storage, [sentParts(upload.id)])
    const { etag } = await blobs.parts.end({ key, uploadId }, [...(before as unknown as SentPart[]), ...sent])
    return { etag, size: upload.size ?? 0 }
  } catch (error) {
    if (!(error instanceof PartsGone)) throw error
    // An attempt before this one may have come so far, and no further.
    const stored = await blobs.look(key)
    if (stored?.size !== upload.size) throw new StorageError('NoSuchUpload')
    return stored
  }
}

import { type BufferedParts, bufferParts, ownerOf } from '../../../platform/blobs/buffered-parts.ts'
import { BodyInterrupted, BodyStalled } from '../../../platform/blobs/chunk-reader.ts'
import { MemoryExhausted } from '../../../platform/blobs/memory-budget.ts'
import { openStore, PartsGone, type SentPart, type Stored } from '../../../platform/blobs/store.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { blobKey } from '../blob-key.ts'
import { asServer } from '../database.ts'
import type { Storage } from '../request.ts'
import { whileBucketAnswers } from '../retry-until-ready.ts'
import { notePart, noteTail, releaseUpload, sentParts, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { removeBytes } from '../upload-object.ts'
import { point } from './finish-upload.ts'
import { sizeExceeded } from './tus-protocol.ts'
import { descriptionOf, keyOf, type Session } from './upload-session.ts'

export interface Body {
  stream: ReadableStream<Uint8Array> | null
  /** In bytes, where it is known. */
  length: number | undefined
}

type Bytes = Uint8Array<ArrayBuffer>
const NOTHING = new Uint8Array()
const NO_BODY = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.close() })

/**
 * Takes the bytes of one request, in parts of one length, each noted once it is in the bucket; what is left and fills none is kept beside them,
 * also where the request breaks off.
 * With the last byte the object gets its row. Returns how far the upload has come.
 */
export async function receive(session: Session, { stream, length }: Body): Promise<number> {
  const { storage, upload } = session
  const bytes = Math.min(upload.part_bytes, (upload.size ?? upload.size_max) - upload.received + upload.tail_bytes)
  const parts = bufferParts(stream ?? NO_BODY(), { bytes, owner: ownerOf(keyOf(session)) })
  // Their memory is held for as long as they are there, also when nobody waits for them any more.
  const work = receiveParts(session, parts, length).finally(parts.release)
  // A caller that goes away would else end the request before what it began is noted.
  storage.ctx.waitUntil(work.catch(() => {}))
  try {
    return await whileBucketAnswers(storage, bytes, work)
  } catch (error) {
    if (error instanceof StorageError && error.code !== 'BytesUnavailable') parts.discard()
    else void parts.cancel(error).catch(() => {})
    if (error instanceof MemoryExhausted)
      throw new StorageError('SlowDown', 'Too many large uploads at once: try again')
    if (isCutOff(error)) throw new StorageError('RequestAborted')
    throw error
  }
}

const isCutOff = (error: unknown): boolean => error instanceof BodyInterrupted || error instanceof BodyStalled

async function receiveParts(session: Session, parts: BufferedParts, length: number | undefined): Promise<number> {
  const { storage, upload } = session
  const { part_bytes, size, size_max } = upload
  const end = size ?? size_max
  let { received, next_part: n, upload_id: uploadId } = upload
  let tail = upload.tail ? await readTail(session, upload.tail, parts) : undefined
  for (;;) {
    const begin = received - (tail?.length ?? 0)
    let bytes = await parts.next(Math.min(part_bytes, end - begin), tail).catch(async (error) => {
      // Who is gone, or sends too slowly, goes on from there.
      if (isCutOff(error)) await keepRest(session, parts.rest(), { begin, received })
      throw error
    })
    const before = received
    received = begin + bytes.length
    if (received === end && !(await parts.ended())) throw sizeExceeded()
    if (received === size) {
      await complete(session, { n, uploadId, bytes })
      return received
    }
    if (bytes.length < part_bytes) {
      await keepRest(session, bytes, { begin, received: before })
      return received
    }
    uploadId ??= await openStore(storage.ctx).parts.begin(keyOf(session), descriptionOf(upload))
    const isEnd = received - upload.received === length
    n = await sendPart(session, { n, uploadId, bytes }, { received, isEnd })
    if (isEnd) return received
    // So that the next is never in memory beside it.
    bytes = NOTHING
    tail = undefined
  }
}

/** What is put behind it is in the same memory, as is what is read of it. */
async function readTail({ storage, upload }: Session, version: string, parts: BufferedParts): Promise<Bytes> {
  await parts.reserve()
  const found = await openStore(storage.ctx).get(blobKey(storage.project.ref, version))
  const bytes = found ? new Uint8Array(await new Response(found.body).arrayBuffer()) : NOTHING
  if (bytes.length !== upload.tail_bytes) throw new StorageError('NoSuchUpload')
  return bytes
}

/** What has come behind the parts when a request is over: it begins with the tail that was there. */
async function keepRest(session: Session, bytes: Bytes, { begin, received }: { begin: number; received: number }) {
  const { storage, upload, lease } = session
  const reached = begin + bytes.length
  if (reached > received) await keepTail(session, bytes, reached)
  else await asServer(storage, [releaseUpload({ id: upload.id, lease })])
}

/** Under a version of its own: whatever breaks off, the row names bytes that are there. */
async function keepTail({ storage, upload, lease }: Session, bytes: Bytes, received: number): Promise<void> {
  const version = newTimedId(storage.ctx.now())
  const key = blobKey(storage.project.ref, version)
  const length = bytes.length
  await openStore(storage.ctx).put(key, bytes, { size: length })
  const [[noted] = []] = await asServer(storage, [
    noteTail({ id: upload.id, lease }, { version, bytes: length, received }),
  ])
  removeTail(storage, noted ? upload : { tail: version })
  if (!noted) throw new StorageError('OffsetConflict')
}

function removeTail(storage: Storage, { tail }: Pick<Upload, 'tail'>): void {
  if (tail) removeBytes(storage, blobKey(storage.project.ref, tail))
}

interface Part {
  n: number
  uploadId: string
  bytes: Bytes
}

/** What S3 takes. */
const PART_NUMBER_MAX = 10_000

function checkNumber(n: number): void {
  if (n > PART_NUMBER_MAX) throw new StorageError('EntityTooLarge', 'The upload was interrupted too often')
}

/** Returns the number of the next one. */
async function sendPart(
  session: Session,
  { n, uploadId, bytes }: Part,
  { received, isEnd }: { received: number; isEnd: boolean },
): Promise<number> {
  const { storage, upload, lease } = session
  checkNumber(n)
  const { parts } = openStore(storage.ctx)
  const target = { key: keyOf(session), uploadId }
  // Nobody else knows of one that was begun for this part: no row names it.
  const isOwn = uploadId !== upload.upload_id && received - bytes.length <= upload.received
  const dropOwn = () => {
    if (isOwn) storage.ctx.waitUntil(parts.drop(target).catch(() => {}))
  }
  const etag = await parts.put(target, n, bytes).catch((error) => {
    dropOwn()
    return refuseGone(error)
  })
  const part = { n, etag, uploadId, received, isEnd }
  const [[noted] = []] = await asServer(storage, [notePart({ id: upload.id, lease }, part)])
  if (noted) {
    if (received - bytes.length < upload.received) removeTail(storage, upload)
    return Number(noted.next_part)
  }
  dropOwn()
  throw new StorageError('OffsetConflict')
}

function refuseGone(error: unknown): never {
  throw error instanceof PartsGone ? new StorageError('NoSuchUpload') : error
}

type LastPart = Omit<Part, 'uploadId'> & { uploadId: string | null }

/** Puts the bytes together and points the object's row at them. */
async function complete(session: Session, { n, uploadId, bytes }: LastPart): Promise<void> {
  const { storage, upload } = session
  if (uploadId) {
    await point(session, { version: upload.id, ...(await putTogether(session, { n, uploadId, bytes })) })
  } else {
    // Another request may send the same at the same time, and what stands under a version never changes.
    const version = newTimedId(storage.ctx.now())
    const options = { size: bytes.length, contentType: descriptionOf(upload).contentType }
    const stored = await openStore(storage.ctx).put(blobKey(storage.project.ref, version), bytes, options)
    await point(session, { version, ...stored })
  }
  removeTail(storage, upload)
}

async function putTogether(session: Session, { n, uploadId, bytes }: Part): Promise<Stored> {
  const { storage, upload } = session
  if (bytes.length > 0) checkNumber(n)
  const blobs = openStore(storage.ctx)
  const key = keyOf(session)
  try {
    const sent = bytes.length > 0 ? [{ n, etag: await blobs.parts.put({ key, uploadId }, n, bytes) }] : []
    const [before = []] = await asServer(storage, [sentParts(upload.id)])
    const { etag } = await blobs.parts.end({ key, uploadId }, [...(before as unknown as SentPart[]), ...sent])
    return { etag, size: upload.size ?? 0 }
  } catch (error) {
    if (!(error instanceof PartsGone)) throw error
    // An attempt before this one may have come so far, and no further.
    const stored = await blobs.head(key)
    if (stored?.size !== upload.size) throw new StorageError('NoSuchUpload')
    return stored
  }
}

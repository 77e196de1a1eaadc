import { type BufferedParts, bufferParts, ownerOf } from '../../../platform/blobs/buffered-parts.ts'
import { BodyInterrupted, BodyStalled } from '../../../platform/blobs/chunk-reader.ts'
import { MemoryExhausted } from '../../../platform/blobs/memory-budget.ts'
import { openStore, PartsGone, readAll, type SentPart, type Stored } from '../../../platform/blobs/store.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { blobKey } from '../blob-key.ts'
import { waitWhileBucketResponds } from '../bucket-timeout.ts'
import { asServer, type Storage } from '../database.ts'
import type { IncomingBody } from '../route.ts'
import { recordPart, recordTail, releaseUpload, sentParts, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { removeBytes } from '../upload-object.ts'
import { finishUpload } from './finish-upload.ts'
import { sizeExceeded } from './tus-protocol.ts'
import { descriptionOf, keyOf, PART_BYTES_MAX, type Session } from './upload-session.ts'

type Bytes = Uint8Array<ArrayBuffer>
const NOTHING = new Uint8Array()
const NO_BODY = () => new ReadableStream<Uint8Array>({ start: (controller) => controller.close() })

/**
 * Stores the bytes of one request in parts of equal length, and records each part once it is in the bucket. The rest that fills no part
 * (the tail) is stored too, even if the request is interrupted. The last byte of the upload creates the row of the object. Returns the new
 * offset of the upload.
 */
export async function receiveBytes(
  session: Session,
  { stream, length }: Pick<IncomingBody, 'stream' | 'length'>,
): Promise<number> {
  const { storage, upload } = session
  const bytes = Math.min(upload.part_bytes, (upload.size ?? upload.size_max) - upload.received + upload.tail_bytes)
  const parts = bufferParts(stream ?? NO_BODY(), { bytes, owner: ownerOf(keyOf(session)) })
  // The memory of the parts stays reserved until the work ends, even after this request has failed.
  const work = receiveParts(session, parts, length).finally(parts.release)
  // Without this, a client that disconnects ends the request before its parts are recorded.
  storage.ctx.waitUntil(work.catch(() => {}))
  try {
    return await waitWhileBucketResponds(storage, bytes, work)
  } catch (error) {
    if (error instanceof StorageError && error.code !== 'BytesUnavailable') parts.discard()
    else void parts.cancel(error).catch(() => {})
    if (error instanceof MemoryExhausted)
      throw new StorageError('SlowDown', 'Too many large uploads at once: try again shortly')
    if (isInterrupted(error)) throw new StorageError('RequestAborted')
    throw error
  }
}

const isInterrupted = (error: unknown): boolean => error instanceof BodyInterrupted || error instanceof BodyStalled

async function receiveParts(session: Session, parts: BufferedParts, length: number | undefined): Promise<number> {
  const { storage, upload } = session
  if (!hasValidSizes(upload)) throw new StorageError('NoSuchUpload')
  const { part_bytes, size, size_max } = upload
  const end = size ?? size_max
  let { received, next_part: n, upload_id: uploadId } = upload
  let tail = upload.tail ? await readTail(session, upload.tail, parts) : undefined
  for (;;) {
    const begin = received - (tail?.length ?? 0)
    let bytes = await parts.next(Math.min(part_bytes, end - begin), tail).catch(async (error) => {
      // The client can continue after the bytes that an interrupted request sent.
      if (isInterrupted(error)) await saveRest(session, parts.rest(), { begin, received })
      throw error
    })
    const before = received
    received = begin + bytes.length
    if (received === end && !(await parts.ended())) throw sizeExceeded()
    if (received === size) {
      await completeUpload(session, { n, uploadId, bytes })
      return received
    }
    if (bytes.length < part_bytes) {
      await saveRest(session, bytes, { begin, received: before })
      return received
    }
    uploadId ??= await openStore(storage.ctx).parts.begin(keyOf(session), descriptionOf(upload))
    const isEnd = received - upload.received === length
    n = await sendPart(session, { n, uploadId, bytes }, { received, isEnd })
    if (isEnd) return received
    // Released before the next part is read, so that only one part is in memory.
    bytes = NOTHING
    tail = undefined
  }
}

/** Whether the sizes in the row are plausible. They decide how much memory is reserved, and a trigger of the project's owner can change them. */
const hasValidSizes = ({ part_bytes, tail_bytes, received, size, size_max }: Upload): boolean =>
  part_bytes <= PART_BYTES_MAX &&
  tail_bytes >= 0 &&
  tail_bytes < part_bytes &&
  tail_bytes <= received &&
  received <= (size ?? size_max)

/** Reads the stored tail into the memory reserved for the part that begins with it. */
async function readTail({ storage, upload }: Session, version: string, parts: BufferedParts): Promise<Bytes> {
  await parts.reserve()
  const found = await openStore(storage.ctx).get(blobKey(storage.project.ref, version))
  if (found?.size === upload.tail_bytes) return readAll(found)
  // The project's owner can name any version as the tail.
  void found?.body?.cancel().catch(() => {})
  throw new StorageError('NoSuchUpload')
}

/** Stores the bytes after the last part when a request ends. They begin with the stored tail, if there was one. */
async function saveRest(session: Session, bytes: Bytes, { begin, received }: { begin: number; received: number }) {
  const { storage, upload, lease } = session
  const reached = begin + bytes.length
  if (reached > received) await saveTail(session, bytes, reached)
  else await asServer(storage, [releaseUpload({ id: upload.id, lease })])
}

/** Stores the tail as a new version, so that the row refers to stored bytes even after a crash. */
async function saveTail({ storage, upload, lease }: Session, bytes: Bytes, received: number): Promise<void> {
  const version = newTimedId(storage.ctx.now())
  const key = blobKey(storage.project.ref, version)
  const length = bytes.length
  await openStore(storage.ctx).put(key, bytes, { size: length })
  const [[recorded] = []] = await asServer(storage, [
    recordTail({ id: upload.id, lease }, { version, bytes: length, received }),
  ])
  removeTail(storage, recorded ? upload : { tail: version })
  if (!recorded) throw new StorageError('OffsetConflict')
}

export function removeTail(storage: Storage, { tail }: Pick<Upload, 'tail'>): void {
  if (tail) removeBytes(storage, blobKey(storage.project.ref, tail))
}

interface Part {
  n: number
  uploadId: string
  bytes: Bytes
}

/** The limit of S3. */
const PART_NUMBER_MAX = 10_000

function checkNumber(n: number): void {
  if (n > PART_NUMBER_MAX)
    throw new StorageError('EntityTooLarge', 'The upload was interrupted too often: start a new upload')
}

/** Stores and records one part. Returns the number of the next part. */
async function sendPart(
  session: Session,
  { n, uploadId, bytes }: Part,
  { received, isEnd }: { received: number; isEnd: boolean },
): Promise<number> {
  const { storage, upload, lease } = session
  checkNumber(n)
  const { parts } = openStore(storage.ctx)
  const target = { key: keyOf(session), uploadId }
  // A multipart upload that was begun for this part is in no row yet.
  const isUnrecorded = uploadId !== upload.upload_id && received - bytes.length <= upload.received
  const dropUnrecorded = () => {
    if (isUnrecorded) storage.ctx.waitUntil(parts.drop(target).catch(() => {}))
  }
  const etag = await parts.put(target, n, bytes).catch((error) => {
    dropUnrecorded()
    throw error instanceof PartsGone ? new StorageError('NoSuchUpload') : error
  })
  const part = { n, etag, uploadId, received, isEnd }
  const [[recorded] = []] = await asServer(storage, [recordPart({ id: upload.id, lease }, part)])
  if (recorded) {
    if (received - bytes.length < upload.received) removeTail(storage, upload)
    return Number(recorded.next_part)
  }
  dropUnrecorded()
  throw new StorageError('OffsetConflict')
}

type LastPart = Omit<Part, 'uploadId'> & { uploadId: string | null }

/** Assembles the bytes and points the object's row at them. */
async function completeUpload(session: Session, { n, uploadId, bytes }: LastPart): Promise<void> {
  const { storage, upload } = session
  if (uploadId) {
    await finishUpload(session, { version: upload.id, ...(await assembleParts(session, { n, uploadId, bytes })) })
  } else {
    // A version of its own, because a version never changes and a concurrent request may send the same bytes.
    const version = newTimedId(storage.ctx.now())
    const options = { size: bytes.length, contentType: descriptionOf(upload).contentType }
    const stored = await openStore(storage.ctx).put(blobKey(storage.project.ref, version), bytes, options)
    await finishUpload(session, { version, ...stored })
  }
  removeTail(storage, upload)
}

async function assembleParts(session: Session, { n, uploadId, bytes }: Part): Promise<Stored> {
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
    // An earlier attempt may have assembled the parts and failed afterwards.
    const stored = await blobs.head(key)
    if (stored?.size !== upload.size) throw new StorageError('NoSuchUpload')
    return stored
  }
}

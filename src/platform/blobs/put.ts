import { DeleteObjectCommand } from '@aws-sdk/client-s3'
import { type Bucket, BucketError } from './bucket.ts'
import { bufferParts, ownerOf } from './buffered-parts.ts'
import { BodyStalled, passChunks, readChunks } from './chunk-reader.ts'
import { uploadPart, uploadParts } from './multipart.ts'
import { readParts } from './part-reader.ts'

export interface Stored {
  /** ETag with its quotes. */
  etag: string
  size: number
}

interface Target {
  key: string
  contentType?: string | undefined
}

interface KnownSize {
  size: number
  /** Time within which each chunk of the body must arrive, if not the default. */
  silenceMsMax?: number | undefined
}

/** The body is longer than allowed. */
export class BlobTooLarge extends Error {
  override name = 'BlobTooLarge'
}

/** The body does not have the announced length. */
export class BlobIncomplete extends Error {
  override name = 'BlobIncomplete'
}

/** The connection to the client or to the bucket was lost, or the length is wrong: the runtime does not distinguish these. */
export class BlobInterrupted extends Error {
  override name = 'BlobInterrupted'
}

const MIB = 1024 ** 2
const PARTS_MAX = 10_000
const PART_BYTES_MIN = 5 * MIB
/** Each part is held in memory. All have the same length, as some buckets require. */
const PART_BYTES_MAX = 16 * MIB
export const BLOB_BYTES_MAX = PARTS_MAX * PART_BYTES_MAX
/** Smaller bodies are read into memory: this costs no more and allows retries. */
const SMALL_BYTES_MAX = 64 * 1024
/** S3 accepts 5 GB in one request. */
const WHOLE_BYTES_MAX = 4.9e9

export async function put(
  bucket: Bucket,
  { size, ...target }: Target & KnownSize,
  body: ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer>,
): Promise<Stored> {
  if (body instanceof Uint8Array || size <= SMALL_BYTES_MAX) {
    const bytes = body instanceof Uint8Array ? body : await readParts(body, { bytesMax: size }).next(size + 1)
    if (bytes.length !== size) throw new BlobIncomplete(`${bytes.length} bytes instead of ${size}`)
    return putWhole(bucket, target, bytes)
  }
  if (size <= WHOLE_BYTES_MAX) return putStream(bucket, { size, ...target }, body)
  const stored = await putUnknown(bucket, { sizeMax: size, ...target }, body)
  if (stored.size === size) return stored
  await deleteUnreferenced(bucket, target.key)
  throw new BlobIncomplete(`${stored.size} bytes instead of ${size}`)
}

async function putWhole(bucket: Bucket, { key, contentType }: Target, body: Uint8Array<ArrayBuffer>): Promise<Stored> {
  const response = await bucket.request('PUT', key, { body, ...typeHeader(contentType) })
  return { etag: response.headers.get('etag') ?? '', size: body.length }
}

const typeHeader = (contentType: string | undefined) => contentType && { headers: { 'content-type': contentType } }

async function putStream(
  bucket: Bucket,
  { key, size, contentType, silenceMsMax }: Target & KnownSize,
  body: ReadableStream<Uint8Array>,
): Promise<Stored> {
  const { readable, writable } = new FixedLengthStream(size)
  const chunks = readChunks(body, { chunkMsMax: silenceMsMax })
  const stop = Promise.withResolvers<never>()
  const interrupted = Promise.race([passChunks(chunks, writable), stop.promise]).then(
    () => undefined,
    (cause) => (cause instanceof BodyStalled ? cause : new BlobInterrupted(`after less than ${size} bytes`, { cause })),
  )
  try {
    const response = await bucket.request('PUT', key, { body: readable, ...typeHeader(contentType) })
    const interruption = await interrupted
    if (!interruption) return { etag: response.headers.get('etag') ?? '', size }
    await deleteUnreferenced(bucket, key)
    throw interruption
  } catch (error) {
    stop.reject(error)
    void chunks.cancel(error).catch(() => {})
    if (error instanceof BlobInterrupted || error instanceof BodyStalled) throw error
    if (error instanceof BucketError && error.code !== BODY_TOO_SLOW) throw error
    throw (
      (await interrupted) ??
      new BlobInterrupted(`the body does not have ${size} bytes, or the bucket was lost`, { cause: error })
    )
  }
}

/** Error code of S3 for a body that stalls. */
const BODY_TOO_SLOW = 'RequestTimeout'

/** Deletes bytes that no row refers to. Ignores failures: the sweep removes unreferenced bytes later. */
async function deleteUnreferenced({ client, name: Bucket }: Bucket, Key: string): Promise<void> {
  await client.send(new DeleteObjectCommand({ Bucket, Key })).catch(() => {})
}

export async function putUnknown(
  bucket: Bucket,
  { sizeMax, ...target }: Target & { sizeMax: number },
  body: ReadableStream<Uint8Array>,
): Promise<Stored> {
  const partSize = Math.min(Math.max(Math.ceil(sizeMax / PARTS_MAX), PART_BYTES_MIN), PART_BYTES_MAX)
  const bytesMax = Math.min(sizeMax, PARTS_MAX * partSize)
  const parts = bufferParts(body, { bytes: Math.min(partSize, bytesMax), owner: ownerOf(target.key) })
  let size = 0

  async function nextPart(): Promise<Uint8Array<ArrayBuffer>> {
    const part = await parts.next(Math.min(partSize, bytesMax - size))
    size += part.length
    return part
  }
  async function ended(): Promise<boolean> {
    const isEnd = await parts.ended()
    if (!isEnd && size === bytesMax) throw new BlobTooLarge(`more than ${bytesMax} bytes`)
    return isEnd
  }

  try {
    let part = await nextPart()
    if (await ended()) return await putWhole(bucket, target, part)
    const { etag } = await uploadParts(bucket, target, async (uploadId, n) => {
      if (n > 1) {
        if (await ended()) return undefined
        part = await nextPart()
      }
      const tag = await uploadPart(bucket, { key: target.key, uploadId, n, body: part })
      // Frees the part before the next one is read.
      part = NO_BYTES
      return tag
    })
    return { etag, size }
  } catch (error) {
    if (error instanceof BlobTooLarge) parts.discard()
    else void parts.cancel(error).catch(() => {})
    throw error
  } finally {
    parts.release()
  }
}

const NO_BYTES = new Uint8Array()

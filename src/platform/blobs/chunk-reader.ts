import { awaitWithin } from '../timeout.ts'

export const CHUNK_BYTES = 64 * 1024
/** A body that sends less than one chunk in this time is aborted: it holds memory that others wait for. */
const CHUNK_MS_MAX = 60_000
/** Interval of the `isTooSlow` checks. */
const CHECK_MS = 2_000

/** The sender of a body has stalled. */
export class BodyStalled extends Error {
  override name = 'BodyStalled'
}

/** The connection of a body's sender was lost. */
export class BodyInterrupted extends Error {
  override name = 'BodyInterrupted'
}

export interface ChunkReader {
  /** Returns undefined at the end. */
  next(): Promise<Uint8Array | undefined>
  cancel(reason: unknown): Promise<void>
}

export interface ReadLimits {
  chunkMsMax?: number | undefined
  /** Maximum length of the body, if known: chunks are not allocated larger. */
  bytesMax?: number
  /** Called repeatedly while a chunk is awaited. If it returns true, reading fails with BodyStalled. */
  isTooSlow?(): boolean
}

/**
 * Reads a body chunk by chunk. Chunks are filled up to CHUNK_BYTES if the stream comes from the runtime. Rejects with BodyStalled or
 * BodyInterrupted.
 */
export function readChunks(body: ReadableStream<Uint8Array>, limits: ReadLimits = {}): ChunkReader {
  const bytes = byteReader(body)
  const reader = bytes ?? body.getReader()
  // The extra byte detects a body that is too long.
  const chunkBytes = Math.min(CHUNK_BYTES, (limits.bytesMax ?? CHUNK_BYTES) + 1)
  // Chunks are filled, or a client that sends byte by byte would occupy one chunk of memory for each byte.
  const read = bytes
    ? () => bytes.readAtLeast(chunkBytes, new Uint8Array(chunkBytes)).catch(throwInterrupted)
    : () => (reader as ReadableStreamDefaultReader<Uint8Array>).read()
  return {
    async next() {
      const { done, value } = await withLimits(read(), limits)
      return done ? undefined : value
    },
    cancel: (reason) => reader.cancel(reason),
  }
}

/** Applies to streams of the runtime only: other streams fail with errors of their own. */
function throwInterrupted(cause: unknown): never {
  throw new BodyInterrupted('the connection was lost before the end of the body', { cause })
}

/** Passes all chunks to `to`. Reads the next chunk while the current one is written. */
export async function passChunks({ next, cancel }: ChunkReader, to: WritableStream<Uint8Array>): Promise<void> {
  const writer = to.getWriter()
  try {
    for (let chunk = await next(); chunk; ) [chunk] = await Promise.all([next(), writer.write(chunk)])
    await writer.close()
  } catch (error) {
    void cancel(error).catch(() => {})
    void writer.abort(error).catch(() => {})
    throw error
  }
}

async function withLimits<T>(work: Promise<T>, { chunkMsMax = CHUNK_MS_MAX, isTooSlow }: ReadLimits): Promise<T> {
  for (let msLeft = chunkMsMax; ; ) {
    const ms = isTooSlow ? Math.min(msLeft, CHECK_MS) : msLeft
    const settled = await awaitWithin(ms, work)
    if (settled) return settled.value
    msLeft -= ms
    if (msLeft <= 0) throw new BodyStalled(`less than ${CHUNK_BYTES} bytes in ${chunkMsMax} ms`)
    if (isTooSlow?.()) throw new BodyStalled('the body is too slow while others wait for its memory')
  }
}

/** Returns a reader that reads into given memory; undefined if the stream does not come from the runtime. */
function byteReader(body: ReadableStream<Uint8Array>) {
  try {
    return body.getReader({ mode: 'byob' })
  } catch {
    return undefined
  }
}

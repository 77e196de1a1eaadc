import { CHUNK_BYTES, type ReadLimits, readChunks } from './chunk-reader.ts'
import { discardBody } from './discard-body.ts'

type Bytes = Uint8Array<ArrayBuffer>

/** Reads a body in parts, each of which is in memory. A short body takes at most twice its length. */
export function readParts(body: ReadableStream<Uint8Array>, limits?: ReadLimits) {
  const chunks = readChunks(body, limits)
  let received = 0
  let chunk: Uint8Array | undefined = new Uint8Array()
  let rest: Bytes = new Uint8Array()

  /** Whether the body has no further bytes. Waits for the next ones. */
  async function ended(): Promise<boolean> {
    while (chunk?.length === 0) {
      chunk = await chunks.next()
      received += chunk?.length ?? 0
    }
    return !chunk
  }

  /**
   * Reads the next `size` bytes, fewer only at the end. Awaits `onGrowth` once before it buffers more than one chunk. With `behind`,
   * the bytes are appended to it up to a total of `size`; `behind` must own its buffer, which is transferred.
   */
  async function next(size: number, { onGrowth, behind }: NextOptions = {}): Promise<Bytes> {
    let used = behind?.length ?? 0
    let buffer = behind ? behind.buffer.transfer(size) : new ArrayBuffer(Math.min(size, CHUNK_BYTES))
    try {
      while (used < size && !(await ended()) && chunk) {
        const taken = chunk.subarray(0, size - used)
        if (used + taken.length > buffer.byteLength) {
          if (buffer.byteLength <= CHUNK_BYTES) await onGrowth?.()
          buffer = buffer.transfer(Math.min(size, Math.max(2 * buffer.byteLength, used + taken.length)))
        }
        new Uint8Array(buffer).set(taken, used)
        used += taken.length
        chunk = chunk.subarray(taken.length)
      }
    } catch (error) {
      rest = new Uint8Array(buffer, 0, used)
      throw error
    }
    return new Uint8Array(buffer, 0, used)
  }

  const { cancel } = chunks
  return {
    next,
    ended,
    /** Bytes of the current part that were received before reading it failed. */
    rest: () => rest,
    /** Number of bytes received so far. */
    received: () => received,
    cancel,
    /** Discards the rest of the body, for a refused client that is still sending. */
    discard: () => discardBody({ next: async () => ((await ended()) ? undefined : next(CHUNK_BYTES)), cancel }),
  }
}

interface NextOptions {
  onGrowth?: (() => Promise<void>) | undefined
  behind?: Bytes | undefined
}

import { CHUNK_BYTES, type ReadLimits, readChunks } from './chunk-reader.ts'
import { discardBody } from './discard-body.ts'

type Bytes = Uint8Array<ArrayBuffer>

export interface PartReader {
  /**
   * Reads the next `size` bytes, fewer only at the end. Awaits `onGrowth` once before it buffers more than one chunk. With `behind`,
   * the bytes are appended to it up to a total of `size`; `behind` must own its buffer, which is transferred.
   */
  next(
    size: number,
    options?: { onGrowth?: (() => Promise<void>) | undefined; behind?: Bytes | undefined },
  ): Promise<Bytes>
  /** Whether the body has no further bytes. Waits for the next ones. */
  ended(): Promise<boolean>
  /** Bytes of the current part that were received before reading it failed. */
  rest(): Bytes
  /** Number of bytes received so far. */
  received(): number
  cancel(reason: unknown): Promise<void>
  /** Discards the rest of the body, for a refused client that is still sending. */
  discard(): void
}

/** Reads a body in parts, each of which is in memory. A short body takes at most twice its length. */
export function readParts(body: ReadableStream<Uint8Array>, limits?: ReadLimits): PartReader {
  const chunks = readChunks(body, limits)
  let received = 0
  let chunk: Uint8Array | undefined = new Uint8Array()
  let rest: Bytes = new Uint8Array()

  async function ended(): Promise<boolean> {
    while (chunk?.length === 0) {
      chunk = await chunks.next()
      received += chunk?.length ?? 0
    }
    return !chunk
  }

  const next: PartReader['next'] = async (size, { onGrowth, behind } = {}) => {
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
  const discard = () => discardBody({ next: async () => ((await ended()) ? undefined : next(CHUNK_BYTES)), cancel })
  return { next, ended, rest: () => rest, received: () => received, cancel, discard }
}

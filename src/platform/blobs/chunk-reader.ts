import { dropRest } from './discard-body.ts'

const CHUNK_BYTES = 64 * 1024
/** Who sends less than a chunk in so long holds what others wait for. */
const CHUNK_MS_MAX = 60_000
/** Between two questions whether it is waited for too long. */
const LOOK_MS = 2_000

/** The next bytes did not come in time. */
export class BodyStalled extends Error {
  override name = 'BodyStalled'
}

/** The next bytes did not come at all: whoever sent them is gone. */
export class BodyBroken extends Error {
  override name = 'BodyBroken'
}

export interface ChunkReader {
  /** undefined at the end. */
  next(): Promise<Uint8Array | undefined>
  cancel(reason: unknown): Promise<void>
}

interface Patience {
  chunkMsMax?: number | undefined
  /** What comes is known to be no longer, so that no chunk need have room for more. */
  bytesMax?: number
  /** Asked again and again while a chunk is waited for: true ends the reading. */
  isTooSlow?(): boolean
}

export function readChunks(body: ReadableStream<Uint8Array>, patience: Patience = {}): ChunkReader {
  const bytes = byteReader(body)
  const reader = bytes ?? body.getReader()
  // One more, to see that there are no more.
  const chunkBytes = Math.min(CHUNK_BYTES, (patience.bytesMax ?? CHUNK_BYTES) + 1)
  // Full ones, as a caller who sends byte by byte would else have as many chunks kept.
  const read = bytes
    ? () => bytes.readAtLeast(chunkBytes, new Uint8Array(chunkBytes)).catch(refuse)
    : () => (reader as ReadableStreamDefaultReader<Uint8Array>).read()
  return {
    async next() {
      const { done, value } = await inTime(read(), patience)
      return done ? undefined : value
    },
    cancel: (reason) => reader.cancel(reason),
  }
}

/** Whoever else makes a stream gives it errors of its own. */
function refuse(cause: unknown): never {
  throw new BodyBroken('the body broke off', { cause })
}

/** To the end, as fast as `to` takes them: the next is read meanwhile. */
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

async function inTime<T>(work: Promise<T>, { chunkMsMax = CHUNK_MS_MAX, isTooSlow }: Patience): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<never>((_, reject) => {
    const wait = (msLeft: number) => {
      const ms = isTooSlow ? Math.min(msLeft, LOOK_MS) : msLeft
      timer = setTimeout(() => {
        if (ms === msLeft) reject(new BodyStalled(`less than ${CHUNK_BYTES} bytes in ${chunkMsMax} ms`))
        else if (isTooSlow?.()) reject(new BodyStalled('it comes too slowly while others wait for its memory'))
        else wait(msLeft - ms)
      }, ms)
    }
    wait(chunkMsMax)
  })
  try {
    return await Promise.race([work, tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** Only streams of the runtime can read into given memory. */
function byteReader(body: ReadableStream<Uint8Array>) {
  try {
    return body.getReader({ mode: 'byob' })
  } catch {
    return undefined
  }
}

type Bytes = Uint8Array<ArrayBuffer>

export interface PartReader {
  /**
   * The next bytes, fewer than `size` only at the end. `onGrowth` is awaited once before more than a chunk is kept. With `behind`, which
   * is of no use then and has its buffer for itself, they come behind it, and all of that is no longer than `size`.
   */
  next(
    size: number,
    options?: { onGrowth?: (() => Promise<void>) | undefined; behind?: Bytes | undefined },
  ): Promise<Bytes>
  ended(): Promise<boolean>
  /** What had come of the part whose reading failed. */
  rest(): Bytes
  /** Bytes that have come so far. */
  received(): number
  cancel(reason: unknown): Promise<void>
  /** For a caller who is refused and goes on sending. */
  drop(): void
}

/** A body in parts that are held in memory; a short one takes twice its length at most. */
export function readParts(body: ReadableStream<Uint8Array>, patience?: Patience): PartReader {
  const chunks = readChunks(body, patience)
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
  const drop = () => dropRest({ next: async () => ((await ended()) ? undefined : next(CHUNK_BYTES)), cancel })
  return { next, ended, rest: () => rest, received: () => received, cancel, drop }
}

import { isMemoryWanted, type MemoryReservation, reserveMemory } from './memory-budget.ts'
import { readParts } from './part-reader.ts'

/** A part that takes longer than this and is slower than the minimum rate loses its memory if another request waits for it. */
const SLOW_MS = 10_000
const SLOW_BYTES_PER_SECOND = 64 * 1024

/** The owner of a key: its first two segments, `projects/{ref}`. */
export const ownerOf = (key: string): string => key.split('/', 2).join('/')

interface PartMemory {
  /** Maximum size of a part. */
  bytes: number
  owner: string
}

/** Reads a body in parts. Buffers one part in memory at a time, after waiting for memory unless the whole body is short. */
export function bufferParts(body: ReadableStream<Uint8Array>, { bytes, owner }: PartMemory) {
  let reservation: MemoryReservation | undefined
  /** Time at which the reading of the current part started, and the bytes received before it. */
  let started: { at: number; received: number } | undefined
  const startPart = () => {
    reservation?.renew()
    started = { at: Date.now(), received: received() }
  }
  const isTooSlow = () => {
    reservation?.renew()
    if (!started || !isMemoryWanted(owner)) return false
    const ms = Date.now() - started.at
    return ms >= SLOW_MS && received() - started.received < (ms / 1_000) * SLOW_BYTES_PER_SECOND
  }
  const { next, ended, rest, received, cancel, discard } = readParts(body, { isTooSlow })
  return {
    /** Reads the next bytes, appended to `behind`, as `readParts` does. */
    next(size: number, behind?: Uint8Array<ArrayBuffer>) {
      if (reservation) startPart()
      return next(size, { onGrowth: reservation ? undefined : reserve, behind })
    },
    /** Waits for the memory of a part before any bytes are read. */
    reserve,
    ended() {
      if (reservation) startPart()
      return ended()
    },
    rest,
    cancel,
    discard,
    /** Releases the memory. Must be called in the end. */
    release: () => reservation?.release(),
  }

  async function reserve() {
    reservation = await reserveMemory(bytes, owner)
    startPart()
  }
}
export type BufferedParts = ReturnType<typeof bufferParts>

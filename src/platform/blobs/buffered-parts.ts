import { type PartReader, readParts } from './chunk-reader.ts'
import { type Hold, holdMemory, isMemoryWanted } from './memory-budget.ts'

/** Who takes longer for a part, and is slower, keeps its memory only as long as nobody else waits for it. */
const SLOW_MS = 10_000
const SLOW_BYTES_PER_SECOND = 64 * 1024

/** Keys begin with whose they are: `projects/{ref}`. */
export const ownerOf = (key: string): string => key.split('/', 2).join('/')

export interface HeldParts extends Omit<PartReader, 'next' | 'received'> {
  /** The next bytes, behind those that are given, as of `PartReader`. */
  next(size: number, behind?: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>>
  /** Waits for the memory, for who needs it before any bytes come. */
  hold(): Promise<void>
  /** Of the memory: to be called in the end. */
  release(): void
}

interface Wanted {
  /** Of a part, at most. */
  bytes: number
  owner: string
}

/** A body in parts, one at a time in memory that was waited for, unless all of it is short. */
export function holdParts(body: ReadableStream<Uint8Array>, { bytes, owner }: Wanted): HeldParts {
  let held: Hold | undefined
  /** When the memory was there for the part that is being read, and what had come before. */
  let begun: { at: number; received: number } | undefined
  const begin = () => {
    held?.renew()
    begun = { at: Date.now(), received: received() }
  }
  const isTooSlow = () => {
    held?.renew()
    if (!begun || !isMemoryWanted(owner)) return false
    const ms = Date.now() - begun.at
    return ms >= SLOW_MS && received() - begun.received < (ms / 1_000) * SLOW_BYTES_PER_SECOND
  }
  const { next, ended, rest, received, cancel, drop } = readParts(body, { isTooSlow })
  return {
    next(size, behind) {
      if (held) begin()
      return next(size, { onGrowth: held ? undefined : hold, behind })
    },
    hold,
    ended() {
      if (held) begin()
      return ended()
    },
    rest,
    cancel,
    drop,
    release: () => held?.release(),
  }

  async function hold() {
    held = await holdMemory(bytes, owner)
    begin()
  }
}

/** Budget of all requests of an isolate: half of its memory, as V8 needs the rest. */
const HELD_BYTES_MAX = 64 * 1024 ** 2
/** Budget of one project, so that its slow senders leave memory to others. */
const OWNER_BYTES_MAX = HELD_BYTES_MAX / 2
const POLL_MS = 20
const WAIT_MS_MAX = 30_000

/** No memory became free in time. */
export class MemoryExhausted extends Error {
  override name = 'MemoryExhausted'
}

/** Time after a failed attempt during which its memory counts as wanted. */
const WANTED_MS = 1_000
/** Time until which memory of any owner is wanted. Requests that exceed their owner's own budget are in `wantedUntilBy`. */
let wantedUntil = 0
const wantedUntilBy = new Map<string, number>()

/** Whether other requests wait for memory that this owner holds. */
export const isMemoryWanted = (owner: string): boolean =>
  Date.now() < Math.max(wantedUntil, wantedUntilBy.get(owner) ?? 0)

interface Held {
  owner: string
  bytes: number
  /** Expiry of the hold: its request hangs, or has ended without a release. */
  until: number
}
const holds = new Set<Held>()
/** Longer than any work with a part in memory takes between two renewals. */
const HELD_MS_MAX = 180_000

function bytesHeld(owner?: string): number {
  let bytes = 0
  for (const hold of holds) {
    if (hold.until <= Date.now()) holds.delete(hold)
    else if (owner === undefined || hold.owner === owner) bytes += hold.bytes
  }
  return bytes
}

const fitsAll = (bytes: number) => bytesHeld() + bytes <= HELD_BYTES_MAX

const fits = (bytes: number, owner: string) =>
  bytesHeld() === 0 || (fitsAll(bytes) && bytesHeld(owner) + bytes <= OWNER_BYTES_MAX)

export interface MemoryReservation {
  /** Extends the hold: the memory is still in use. */
  renew(): void
  release(): void
}

/** Waits until the budget has `bytes` free. Polls, because in workerd a request must not await a promise of another request. */
export async function reserveMemory(bytes: number, owner: string): Promise<MemoryReservation> {
  const until = Date.now() + WAIT_MS_MAX
  while (!fits(bytes, owner)) {
    const wanted = Date.now() + WANTED_MS
    if (fitsAll(bytes)) wantedUntilBy.set(owner, wanted)
    else wantedUntil = wanted
    if (Date.now() >= until)
      throw new MemoryExhausted(`no memory is free: ${owner} holds ${bytesHeld(owner)} of ${bytesHeld()} bytes`)
    await scheduler.wait(POLL_MS * (0.5 + Math.random()))
  }
  wantedUntilBy.delete(owner)
  const hold = { owner, bytes, until: Date.now() + HELD_MS_MAX }
  holds.add(hold)
  return {
    renew() {
      hold.until = Date.now() + HELD_MS_MAX
    },
    release: () => void holds.delete(hold),
  }
}

/** What an isolate has is shared by all its requests: half of it, as V8 needs room too. */
const HELD_BYTES_MAX = 64 * 1024 ** 2
/** So that slow senders of one project leave room to the others. */
const OWNER_BYTES_MAX = HELD_BYTES_MAX / 2
const POLL_MS = 20
const WAIT_MS_MAX = 30_000

/** No memory was free for so long: others send slowly what they hold it for. */
export class MemoryTaken extends Error {
  override name = 'MemoryTaken'
}

/** So long after somebody has looked in vain. */
const WANTED_MS = 1_000
/** Until when what anybody holds is waited for; what an owner alone has too much of, others would not gain by. */
let wantedUntil = 0
const wantedUntilBy = new Map<string, number>()

/** What this owner holds is waited for. */
export const isMemoryWanted = (owner: string): boolean =>
  Date.now() < Math.max(wantedUntil, wantedUntilBy.get(owner) ?? 0)

interface Held {
  owner: string
  bytes: number
  /** When it counts no more: whoever took it hangs, or has ended without a word. */
  until: number
}
const holds = new Set<Held>()
/** Longer than anything that is done with a part in memory, or with a body, without a word in between. */
const HELD_MS_MAX = 180_000

function heldBy(owner?: string): number {
  let bytes = 0
  for (const hold of holds) {
    if (hold.until <= Date.now()) holds.delete(hold)
    else if (owner === undefined || hold.owner === owner) bytes += hold.bytes
  }
  return bytes
}

const fitsAll = (bytes: number) => heldBy() + bytes <= HELD_BYTES_MAX

const fits = (bytes: number, owner: string) =>
  heldBy() === 0 || (fitsAll(bytes) && heldBy(owner) + bytes <= OWNER_BYTES_MAX)

export interface Hold {
  /** Says that they are still in use. */
  renew(): void
  release(): void
}

/** Waits until so many bytes may be held at once. A request must not wait for what another awaits, so it looks again and again. */
export async function holdMemory(bytes: number, owner: string): Promise<Hold> {
  const until = Date.now() + WAIT_MS_MAX
  while (!fits(bytes, owner)) {
    const wanted = Date.now() + WANTED_MS
    if (fitsAll(bytes)) wantedUntilBy.set(owner, wanted)
    else wantedUntil = wanted
    if (Date.now() >= until) throw new MemoryTaken(`${heldBy(owner)} of ${heldBy()} bytes are held by ${owner}`)
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

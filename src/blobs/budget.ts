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
let wantedUntil = 0

/** Others wait for what is held. */
export const isMemoryWanted = (): boolean => Date.now() < wantedUntil

const holds = new Set<{ owner: string; bytes: number }>()

function heldBy(owner?: string): number {
  let bytes = 0
  for (const hold of holds) if (owner === undefined || hold.owner === owner) bytes += hold.bytes
  return bytes
}

const fits = (bytes: number, owner: string) =>
  holds.size === 0 || (heldBy() + bytes <= HELD_BYTES_MAX && heldBy(owner) + bytes <= OWNER_BYTES_MAX)

/** Waits until so many bytes may be held at once; what it returns gives them back. A request must not wait for what another awaits, so it looks again and again. */
export async function holdMemory(bytes: number, owner: string): Promise<() => void> {
  const until = Date.now() + WAIT_MS_MAX
  while (!fits(bytes, owner)) {
    wantedUntil = Date.now() + WANTED_MS
    if (Date.now() >= until) throw new MemoryTaken(`${heldBy(owner)} of ${heldBy()} bytes are held by ${owner}`)
    await scheduler.wait(POLL_MS * (0.5 + Math.random()))
  }
  const hold = { owner, bytes }
  holds.add(hold)
  return () => {
    holds.delete(hold)
  }
}

/** What an isolate has is shared by all its requests: half of it, as V8 needs room too. */
const HELD_BYTES_MAX = 64 * 1024 ** 2
const POLL_MS = 20
const WAIT_MS_MAX = 30_000

/** No memory was free for so long: others send slowly what they hold it for. */
export class MemoryTaken extends Error {
  override name = 'MemoryTaken'
}

let held = 0

/** Waits until so many bytes may be held at once; what it returns gives them back. A request must not wait for what another awaits, so it looks again and again. */
export async function holdMemory(bytes: number): Promise<() => void> {
  const until = Date.now() + WAIT_MS_MAX
  while (held > 0 && held + bytes > HELD_BYTES_MAX) {
    if (Date.now() >= until) throw new MemoryTaken(`${held} bytes are held`)
    await scheduler.wait(POLL_MS * (0.5 + Math.random()))
  }
  held += bytes
  return () => {
    held -= bytes
  }
}

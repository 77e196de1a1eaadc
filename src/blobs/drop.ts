import type { ChunkReader } from './chunks.ts'

const BYTES_MAX = 32 * 1024 * 1024
const MS_MAX = 5_000

/**
 * Takes and drops what a refused caller still sends, up to 32 MiB and for up to 5 s: who is writing reads no answer before,
 * and the runtime resets a connection that has bytes left.
 */
export async function dropRest({ next, cancel }: ChunkReader): Promise<void> {
  const stop = new AbortController()
  const dropping = async () => {
    for (let bytes = 0; bytes < BYTES_MAX && !stop.signal.aborted; ) {
      const chunk = await next()
      if (!chunk) return
      bytes += chunk.length
    }
  }
  const tooLate = scheduler.wait(MS_MAX, { signal: stop.signal }).catch(() => {})
  await Promise.race([dropping(), tooLate]).catch(() => {})
  stop.abort()
  void cancel('refused').catch(() => {})
}

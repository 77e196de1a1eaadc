import { AsyncLocalStorage } from 'node:async_hooks'
import { awaitWithin } from '../timeout.ts'
import type { ChunkReader } from './chunk-reader.ts'

const BYTES_MAX = 32 * 1024 * 1024
const MS_MAX = 5_000

/** Bodies of the current request that are being discarded. */
export const discardedBodies = new AsyncLocalStorage<Promise<void>[]>()

/** Discards the rest of a body. The error response is sent at once and stays open until then. */
export function discardBody(chunks: ChunkReader): void {
  discardedBodies.getStore()?.push(discard(chunks))
}

/** Discards what a refused client still sends, up to 32 MiB and for up to 5 s: the runtime resets a connection with unread bytes. */
export async function discard({ next, cancel }: ChunkReader): Promise<void> {
  const until = Date.now() + MS_MAX
  const discarding = async () => {
    for (let bytes = 0; bytes < BYTES_MAX && Date.now() < until; ) {
      const chunk = await next()
      if (!chunk) return
      bytes += chunk.length
    }
  }
  await awaitWithin(MS_MAX, discarding()).catch(() => {})
  void cancel('refused').catch(() => {})
}

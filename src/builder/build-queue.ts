/**
 * Mutex with a time limit. An isolate runs one build at a time: callbacks of the bundler run in the context of any
 * request that called it, and are canceled with that request. The time limit frees the mutex if its holder was
 * canceled.
 */
export function createBuildMutex(seconds: number) {
  let holder: { expiresAt: number; released: Promise<void> } | undefined

  return async function runExclusive<T>(work: () => Promise<T>): Promise<T> {
    while (holder && Date.now() < holder.expiresAt) {
      await Promise.race([holder.released, scheduler.wait(holder.expiresAt - Date.now())])
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    const lock = { expiresAt: Date.now() + seconds * 1_000, released: promise }
    holder = lock
    try {
      return await work()
    } finally {
      if (holder === lock) holder = undefined
      resolve()
    }
  }
}

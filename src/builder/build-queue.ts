/**
 * One build at a time in an isolate: the bundler calls back in whichever request woke it, and what such a call waits for dies with that
 * request. A turn ends when its time is over, too, as a request that is dropped tells nobody.
 */
export function openTurns(seconds: number) {
  let holder: { endsAt: number; ended: Promise<void> } | undefined

  return async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    while (holder && Date.now() < holder.endsAt) {
      await Promise.race([holder.ended, scheduler.wait(holder.endsAt - Date.now())])
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    const turn = { endsAt: Date.now() + seconds * 1_000, ended: promise }
    holder = turn
    try {
      return await work()
    } finally {
      if (holder === turn) holder = undefined
      resolve()
    }
  }
}

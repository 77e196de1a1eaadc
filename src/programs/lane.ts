/** One suspect at a time. */

const QUEUE_MAX = 100
const WAIT_MS_MAX = 10_000
/** Who has held it for longer was dropped by the runtime before he could leave. */
const HELD_MS_MAX = 30_000

export interface Holder {
  program: string
  /** What it calls in its turn goes on beside it. */
  chain: string
}

interface Turn extends Holder {
  takenAt: number
}
interface Waiter {
  turn: Turn
  begin(): void
}

let holder: Turn | undefined
const queue: Waiter[] = []

/** Leaves the lane. False where it was left already. */
export type Leave = () => boolean

/** Undefined where too many wait already, or it takes too long. */
export async function takeLane(by: Holder, waitMsMax = WAIT_MS_MAX): Promise<Leave | undefined> {
  const turn: Turn = { ...by, takenAt: Date.now() }
  if (holder && turn.takenAt - holder.takenAt < HELD_MS_MAX) {
    if (queue.length >= QUEUE_MAX || !(await waitFor(turn, waitMsMax))) return undefined
  } else holder = turn
  return () => {
    if (holder !== turn) return false
    passOn()
    return true
  }
}

/** The suspect that has led to this chain, while it is alone. */
export const holderOf = (chain: string): string | undefined => (holder?.chain === chain ? holder.program : undefined)

function waitFor(turn: Turn, ms: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const waiter = { turn, begin: () => resolve(true) }
  queue.push(waiter)
  const timer = setTimeout(() => {
    const place = queue.indexOf(waiter)
    if (place < 0) return
    queue.splice(place, 1)
    resolve(false)
  }, ms)
  return promise.finally(() => clearTimeout(timer))
}

function passOn(): void {
  const next = queue.shift()
  holder = next?.turn
  if (!next) return
  next.turn.takenAt = Date.now()
  next.begin()
}

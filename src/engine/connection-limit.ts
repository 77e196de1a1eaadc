import { EngineUnavailable } from './engine-errors.ts'

/** SQLSTATE that Postgres reports when a role or the server has no connection left. */
export const TOO_MANY_CONNECTIONS = '53300'

const SESSIONS_MAX = 8
const WAITING_MAX = 64
const POLL_MS = 20

interface Queue {
  /** Latest end of each running session: a request that is canceled never releases its slot. */
  endsAt: Set<{ at: number }>
  waiting: number
}
const queues = new Map<string, Queue>()

interface Bounds {
  waitMs: number
  runMs: number
  max?: number
  /** Above this number of waiting requests, further ones are refused at once. */
  waitingMax?: number
  /** Creates the error of a refused request. */
  refusal?: () => Error
}

/**
 * Limits the concurrent sessions of a role in this isolate, so that a burst for one role leaves connections to the others.
 * Waiting requests hold no connection.
 */
export async function withConnectionSlot<Value>(
  role: string,
  bounds: Bounds,
  work: () => Promise<Value>,
): Promise<Value> {
  const queue = queues.get(role) ?? { endsAt: new Set(), waiting: 0 }
  queues.set(role, queue)
  await waitForSlot(queue, bounds)
  const session = { at: Date.now() + bounds.runMs }
  queue.endsAt.add(session)
  try {
    return await work()
  } finally {
    queue.endsAt.delete(session)
    if (queue.endsAt.size === 0 && queue.waiting === 0) queues.delete(role)
  }
}

async function waitForSlot(
  queue: Queue,
  { waitMs, max = SESSIONS_MAX, waitingMax = WAITING_MAX, refusal = tooManySessions }: Bounds,
): Promise<void> {
  if (hasFreeSlot(queue, max)) return
  if (queue.waiting >= waitingMax) throw refusal()
  const until = Date.now() + waitMs
  queue.waiting += 1
  try {
    while (!hasFreeSlot(queue, max)) {
      if (Date.now() >= until) throw refusal()
      await new Promise((resolve) => setTimeout(resolve, POLL_MS * (0.5 + Math.random())))
    }
  } finally {
    queue.waiting -= 1
  }
}

function hasFreeSlot({ endsAt }: Queue, max: number): boolean {
  const now = Date.now()
  for (const session of endsAt) if (session.at <= now) endsAt.delete(session)
  return endsAt.size < max
}

const tooManySessions = () =>
  new EngineUnavailable('too many sessions are waiting for this role: try again later', { code: TOO_MANY_CONNECTIONS })

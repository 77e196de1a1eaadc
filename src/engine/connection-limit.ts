import { EngineUnavailable } from './engine.ts'

/** SQLSTATE of what Postgres says when a role or the server has no connection left. */
export const TOO_MANY_CONNECTIONS = '53300'

const SESSIONS_MAX = 8
const WAITING_MAX = 64
const POLL_MS = 20

interface Queue {
  /** When each session under way is over at the latest: a request that is cut off never says so. */
  endsAt: Set<{ at: number }>
  waiting: number
}
const queues = new Map<string, Queue>()

/**
 * Lets a few sessions of one role run at a time in this isolate and the others wait here, without a connection: who
 * asks for many at once takes connections from nobody else. Past a bound of waiting requests it refuses at once.
 */
export async function throughGate<Value>(
  role: string,
  { waitMs, runMs, max = SESSIONS_MAX }: { waitMs: number; runMs: number; max?: number },
  work: () => Promise<Value>,
): Promise<Value> {
  const queue = queues.get(role) ?? { endsAt: new Set(), waiting: 0 }
  queues.set(role, queue)
  await turn(queue, max, Date.now() + waitMs)
  const session = { at: Date.now() + runMs }
  queue.endsAt.add(session)
  try {
    return await work()
  } finally {
    queue.endsAt.delete(session)
    if (queue.endsAt.size === 0 && queue.waiting === 0) queues.delete(role)
  }
}

async function turn(queue: Queue, max: number, until: number): Promise<void> {
  if (isFree(queue, max)) return
  if (queue.waiting >= WAITING_MAX) throw full()
  queue.waiting += 1
  try {
    while (!isFree(queue, max)) {
      if (Date.now() >= until) throw full()
      await new Promise((resolve) => setTimeout(resolve, POLL_MS * (0.5 + Math.random())))
    }
  } finally {
    queue.waiting -= 1
  }
}

function isFree({ endsAt }: Queue, max: number): boolean {
  const now = Date.now()
  for (const session of endsAt) if (session.at <= now) endsAt.delete(session)
  return endsAt.size < max
}

const full = () => new EngineUnavailable('too many sessions wait for this role', { code: TOO_MANY_CONNECTIONS })

import type { ServerResponse } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { errorCode } from '../../dev/start-error.ts'
import { clientGone, Refusal } from './refusal.ts'
import type { Session } from './session.ts'
import type { Target } from './target.ts'

export interface PoolOptions {
  open(target: Target): Promise<Session>
  max: number
  waitingMax: number
  waitMs: number
  /** Time that an idle session is kept; 0 closes every session after one request. */
  idleMs: number
  /** Ends an idle session of any pool, because the server has no free connection slot. */
  makeRoom(): void
}

export type Pool = ReturnType<typeof openPool>

interface Waiter {
  key: string
  since: number
  settle(error?: Error): void
}

/** After waiting this long the oldest request is next, even if an idle session would suit another one. */
const OVERTAKING_MS_MAX = 1_000

const RETRY_MS = 50

/**
 * A pool of sessions on one instance. A request takes one of `max` slots while a session serves it, or waits for a slot. As many again
 * may be idle, so that the roles of requests in turn do not end each other's sessions.
 */
export function openPool({ open, max, waitingMax, waitMs, idleMs, makeRoom }: PoolOptions) {
  const busy = new Set<Session>()
  /** Ordered by last use, most recent last. */
  const idle: Session[] = []
  const waiting = new Set<Waiter>()
  let slots = max
  let isClosed = false
  /** The number of times that sessions were ended. */
  let endings = 0
  let sweepTimer: NodeJS.Timeout | undefined

  const closed = () => new Refusal('57P01', 'the host is stopping')

  /** Waits for a slot and a session, until the client of the response disconnects. */
  async function acquire(target: Target, res: ServerResponse): Promise<Session> {
    if (isClosed) throw closed()
    const until = performance.now() + waitMs
    if (slots > 0) slots -= 1
    else await waitForSlot(target.key, res)
    try {
      for (;;) {
        const before = endings
        const session = takeIdle(target.key) ?? (await openWithRetries(target, res, until))
        if (endings === before) {
          busy.add(session)
          return session
        }
        session.abort()
        if (isClosed) throw closed()
      }
    } catch (error) {
      freeSlot()
      throw error
    }
  }

  function waitForSlot(key: string, res: ServerResponse): Promise<void> {
    if (waiting.size >= waitingMax) throw new Refusal('53300', 'too many requests wait for a session of this instance')
    if (res.destroyed) throw clientGone()
    return new Promise((resolve, reject) => {
      const gone = () => waiter.settle(clientGone())
      const late = () => waiter.settle(new Refusal('53300', 'all sessions of this instance are in use'))
      const timer = setTimeout(late, waitMs)
      const waiter: Waiter = {
        key,
        since: performance.now(),
        settle(error) {
          clearTimeout(timer)
          res.off('close', gone)
          waiting.delete(waiter)
          error ? reject(error) : resolve()
        },
      }
      res.once('close', gone)
      waiting.add(waiter)
    })
  }

  function takeIdle(key: string): Session | undefined {
    const at = idle.findLastIndex((session) => session.key === key && !session.failure)
    const [session] = at < 0 ? [] : idle.splice(at, 1)
    if (session) session.isReused = true
    return session
  }

  /** Opens a session. While the server has no free connection slot, tries again until the deadline. */
  async function openWithRetries(target: Target, res: ServerResponse, until: number): Promise<Session> {
    for (let retryMs = RETRY_MS; ; retryMs *= 2) {
      const inUse = max - slots
      if (idle.length + inUse > 2 * max) endOldest()
      try {
        const session = await open(target)
        session.client.on('end', () => remove(session))
        return session
      } catch (error) {
        const isFull = errorCode(error) === '53300' && !isClosed && !res.destroyed
        if (!isFull || performance.now() + retryMs > until) throw error
        makeRoom()
        await delay(retryMs)
      }
    }
  }

  const endOldest = () => idle.shift()?.end()

  function remove(session: Session) {
    if (busy.delete(session)) return freeSlot()
    const at = idle.indexOf(session)
    if (at >= 0) idle.splice(at, 1)
  }

  function freeSlot() {
    const next = isClosed ? undefined : nextWaiter()
    if (next) next.settle()
    else slots += 1
  }

  /** Prefers a request that an idle session can serve. */
  function nextWaiter(): Waiter | undefined {
    const [oldest] = waiting
    if (!oldest || performance.now() - oldest.since > OVERTAKING_MS_MAX) return oldest
    return [...waiting].find(({ key }) => idle.some((session) => session.key === key)) ?? oldest
  }

  /** Returns a session to the pool. The slot of a session that is not reused becomes free when its connection has ended. */
  function release(session: Session, isReusable: boolean) {
    if (!busy.has(session)) return
    if (!isReusable || session.failure) return session.abort()
    if (idleMs === 0 || isClosed) return session.end()
    busy.delete(session)
    session.idleSince = performance.now()
    idle.push(session)
    sweepTimer ??= setTimeout(sweep, idleMs).unref()
    freeSlot()
  }

  function sweep() {
    sweepTimer = undefined
    const until = performance.now() - idleMs
    while (idle[0] && idle[0].idleSince <= until) endOldest()
    const [oldest] = idle
    if (oldest) sweepTimer = setTimeout(sweep, oldest.idleSince - until + 1).unref()
  }

  function endIdle() {
    for (const session of idle.splice(0)) session.end()
  }

  /** Ends idle sessions and aborts those in use or being opened; waiting requests get new ones. */
  function endSessions() {
    endings += 1
    endIdle()
    for (const session of busy) session.abort()
  }

  /** Ends all sessions and refuses waiting requests. */
  async function close(): Promise<void> {
    isClosed = true
    clearTimeout(sweepTimer)
    for (const waiter of waiting) waiter.settle(closed())
    const ended = [...busy, ...idle].map(({ client }) => new Promise((resolve) => client.once('end', resolve)))
    endSessions()
    await Promise.all(ended)
  }
  return { acquire, release, endOldest, endIdle, endSessions, close }
}

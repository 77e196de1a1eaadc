import type { ServerResponse } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { errorCode } from '../../dev/start-error.ts'
import { Refusal } from './refusal.ts'
import type { Session } from './session.ts'
import type { Target } from './target.ts'

export interface PoolOptions {
  open(target: Target): Promise<Session>
  max: number
  waitingMax: number
  waitMs: number
  /** 0 keeps no session for a second request. */
  idleMs: number
}

export type Pool = ReturnType<typeof openPool>

interface Waiter {
  key: string
  since: number
  settle(error?: Error): void
}

/** The oldest request comes first from this time on, whatever session it needs. */
const OVERTAKEN_MS_MAX = 1_000

const RETRY_MS = 50

/** Sessions of one instance. A request has one of `max` places for as long as its session serves it, or waits for one. */
export function openPool({ open, max, waitingMax, waitMs, idleMs }: PoolOptions) {
  const busy = new Set<Session>()
  /** The one used last comes last. */
  const idle: Session[] = []
  const waiting = new Set<Waiter>()
  let places = max
  let isClosed = false
  let sweeping: NodeJS.Timeout | undefined

  const closed = () => new Refusal('57P01', 'the host is stopping')

  /** Waits for its turn, until the client of the response goes away. */
  async function acquire(target: Target, res: ServerResponse): Promise<Session> {
    if (isClosed) throw closed()
    const until = performance.now() + waitMs
    if (places > 0) places -= 1
    else await turn(target.key, res)
    try {
      const session = takeIdle(target.key) ?? (await start(target, res, until))
      busy.add(session)
      if (isClosed) session.abort()
      return session
    } catch (error) {
      freePlace()
      throw error
    }
  }

  function turn(key: string, res: ServerResponse): Promise<void> {
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

  /** A server that has no room for one more session is asked again: others may end theirs. */
  async function start(target: Target, res: ServerResponse, until: number): Promise<Session> {
    for (let retryMs = RETRY_MS; ; retryMs *= 2) {
      const inUse = max - places
      if (idle.length + inUse > max) endOldest()
      try {
        const session = await open(target)
        session.client.on('end', () => forget(session))
        return session
      } catch (error) {
        const isFull = errorCode(error) === '53300' && !isClosed && !res.destroyed
        if (!isFull || performance.now() + retryMs > until) throw error
        endOldest()
        await delay(retryMs)
      }
    }
  }

  const endOldest = () => idle.shift()?.end()

  function forget(session: Session) {
    if (busy.delete(session)) return freePlace()
    const at = idle.indexOf(session)
    if (at >= 0) idle.splice(at, 1)
  }

  function freePlace() {
    const next = isClosed ? undefined : nextWaiter()
    if (next) next.settle()
    else places += 1
  }

  /** One that an idle session serves comes before those that need another. */
  function nextWaiter(): Waiter | undefined {
    const [oldest] = waiting
    if (!oldest || performance.now() - oldest.since > OVERTAKEN_MS_MAX) return oldest
    return [...waiting].find(({ key }) => idle.some((session) => session.key === key)) ?? oldest
  }

  /** The place of a session that is not reused is free once its connection has ended. */
  function release(session: Session, isReusable: boolean) {
    if (!busy.has(session)) return
    if (!isReusable || session.failure) return session.abort()
    if (idleMs === 0 || isClosed) return session.end()
    busy.delete(session)
    session.idleSince = performance.now()
    idle.push(session)
    sweeping ??= setTimeout(sweep, idleMs).unref()
    freePlace()
  }

  function sweep() {
    sweeping = undefined
    const until = performance.now() - idleMs
    while (idle[0] && idle[0].idleSince <= until) endOldest()
    const [oldest] = idle
    if (oldest) sweeping = setTimeout(sweep, oldest.idleSince - until + 1).unref()
  }

  function endIdle() {
    for (const session of idle.splice(0)) session.end()
  }

  /** Aborts those in use; requests that wait get new ones. */
  function endSessions() {
    endIdle()
    for (const session of busy) session.abort()
  }

  /** Waiting requests are refused too. */
  async function close(): Promise<void> {
    isClosed = true
    clearTimeout(sweeping)
    for (const waiter of waiting) waiter.settle(closed())
    const ended = [...busy, ...idle].map(({ client }) => new Promise((resolve) => client.once('end', resolve)))
    endSessions()
    await Promise.all(ended)
  }
  return { acquire, release, endIdle, endSessions, close }
}

const clientGone = () => new Refusal('57014', 'the client went away')

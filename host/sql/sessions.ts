import type { ServerResponse } from 'node:http'
import type { Instances } from '../instances/types.ts'
import { UnknownInstance } from '../instances/types.ts'
import type { SqlLimits } from './limits.ts'
import { openPool, type Pool } from './pool.ts'
import { openSession, type Session } from './session.ts'
import type { Target } from './target.ts'

export interface Lease {
  session: Session
  release(leaving: Leaving): void
}

/** How a request leaves its session: a `failed` one perhaps in a transaction; a `broken` one is not known, so it dies. */
export type Leaving = 'reset' | 'used' | 'failed' | 'broken'

/** The sessions of one instance are kept apart, so that no kind of caller takes the room of another. */
interface Pools {
  pooled: Pool
  single: Pool
  client: Pool
}

export type Sessions = ReturnType<typeof openSessions>

/**
 * Session state must not pass from one request to the next. Roles that are not pooled get a session of their own for each
 * request, so nothing they do can outlive it.
 */
export function openSessions(instances: Instances, limits: SqlLimits) {
  const { waitMs, connectTimeoutMs } = limits
  const pools = new Map<string, Pools>()

  async function open(target: Target): Promise<Session> {
    const instance = instances.find(target.name)
    if (!instance) throw new UnknownInstance(target.name)
    return openSession(instance, target, connectTimeoutMs)
  }

  function openPools(name: string): Pools {
    const isControl = name === 'control'
    const max = isControl ? limits.controlSessionsMax : limits.sessionsMax
    const idleMs = isControl ? limits.controlIdleMs : limits.idleMs
    const waitingMax = isControl ? limits.controlWaitingMax : limits.waitingMax
    const common = { open, waitingMax, waitMs }
    const created = {
      pooled: openPool({ ...common, max, idleMs }),
      single: openPool({ ...common, max, idleMs: 0 }),
      client: openPool({ ...common, max: limits.clientSessionsMax, idleMs: 0 }),
    }
    pools.set(name, created)
    return created
  }

  async function acquire(target: Target, res: ServerResponse): Promise<Lease> {
    const { pooled, single, client } = pools.get(target.name) ?? openPools(target.name)
    const pool = target.pooling !== 'single' ? pooled : target.isTrusted ? single : client
    const session = await pool.acquire(target, res)
    return { session, release: (leaving) => release(pool, session, leaving) }
  }

  /** Ends all sessions of an instance, or only those of callers without the host's key. */
  function endSessions(name: string, whose: 'all' | 'clients') {
    const known = pools.get(name)
    known?.client.endSessions()
    if (whose === 'clients') return
    known?.pooled.endSessions()
    known?.single.endSessions()
    if (!instances.find(name)) pools.delete(name)
  }

  async function close() {
    const all = [...pools.values()].flatMap(({ pooled, single, client }) => [pooled, single, client])
    await Promise.all(all.map((pool) => pool.close()))
  }
  return { acquire, endIdle: (name: string) => pools.get(name)?.pooled.endIdle(), endSessions, close }
}

function release(pool: Pool, session: Session, leaving: Leaving) {
  const reset = leaving === 'reset' ? [] : session.reset
  const cleaning = [...(leaving === 'failed' ? ['ROLLBACK'] : []), ...reset]
  // A session for one request is closed, which undoes everything.
  if (leaving === 'broken' || cleaning.length === 0 || !session.plans) {
    return pool.release(session, leaving !== 'broken')
  }
  session.client.query(cleaning.join('; ')).then(
    () => pool.release(session, true),
    () => pool.release(session, false),
  )
}

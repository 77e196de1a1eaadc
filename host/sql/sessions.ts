import type { ServerResponse } from 'node:http'
import type { Instances } from '../instances/types.ts'
import { UnknownInstance } from '../instances/types.ts'
import type { SqlLimits } from './limits.ts'
import { openPool, type Pool } from './pool.ts'
import { openSession, type Session } from './session.ts'
import type { Target } from './target.ts'

export interface Lease {
  session: Session
  release(state: SessionState): void
}

/** State of a session after a request: `failed` may be in a transaction; `broken` is unknown, so the session is closed. */
export type SessionState = 'reset' | 'used' | 'failed' | 'broken'

/** Pools of one instance, one for each kind of caller, so that none takes the sessions of another. */
interface Pools {
  pooled: Pool
  single: Pool
  client: Pool
}

export type Sessions = ReturnType<typeof openSessions>

/**
 * Opens sessions for requests. State must not pass from one request to the next, so roles that are not pooled get a session for
 * each request.
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
    // The other pools have no idle sessions.
    const common = { open, waitingMax, waitMs, makeRoom: () => created.pooled.endOldest() }
    const created: Pools = {
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
    return { session, release: (state) => release(pool, session, state) }
  }

  /** Ends all sessions of an instance, or only those of callers without the host key. */
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

function release(pool: Pool, session: Session, state: SessionState) {
  const reset = state === 'reset' ? [] : session.reset
  const cleanup = [...(state === 'failed' ? ['ROLLBACK'] : []), ...reset]
  // A session without plans serves one request and is then closed, which undoes everything.
  if (state === 'broken' || cleanup.length === 0 || !session.plans) {
    return pool.release(session, state !== 'broken')
  }
  session.client.query(cleanup.join('; ')).then(
    () => pool.release(session, true),
    () => pool.release(session, false),
  )
}

import pg from 'pg'
import { isSameAddress, type PostgresAddress } from '../neon-proxy.ts'
import type { Plan } from './text-query.ts'

export interface ConnectionsOptions {
  postgres: PostgresAddress
  poolingOf(role: string): Pooling | undefined
  connectionsMax: number
  connectTimeoutMs: number
}

/** `trusted` roles promise to leave no session state behind; after a request of the others it is taken back. */
export type Pooling = 'trusted' | 'reset'

export interface Lease {
  client: pg.ClientBase
  /** By their text, so that Postgres plans each once for a connection; absent where a connection serves one request. */
  plans?: Map<string, Plan>
  /** Takes a session's state back, where it is run after a transaction. */
  reset: readonly string[]
  /** Postgres's word on the session after the last statement: `I` is outside of any transaction. */
  transactionStatus(): string | null
  /** Cuts the connection; Postgres then stops what it was doing for it. */
  abort(): void
  release(leaving: Leaving): void
}

/** How a request leaves its session: a `failed` one perhaps in a transaction, a `broken` one as nobody knows, so it dies. */
export type Leaving = 'reset' | 'used' | 'failed' | 'broken'

export interface Connections {
  acquire(connectionString: string): Promise<Lease>
  close(): Promise<void>
}

class RefusedConnection extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** What DISCARD ALL does, but for the plans, which nobody can change. */
const RESET = [
  'RESET SESSION AUTHORIZATION',
  'RESET ALL',
  'CLOSE ALL',
  'UNLISTEN *',
  'SELECT pg_catalog.pg_advisory_unlock_all()',
  'DISCARD SEQUENCES',
  'DISCARD TEMP',
]

const IDLE_MS = 30_000
const POOLS_MAX = 200

interface Pool {
  connections: pg.Pool
  reset: readonly string[]
}

/**
 * Session state must not pass from one request to the next. Roles that are not pooled get a connection of their own per
 * request, so nothing they do can outlive the request.
 */
export function openConnections(options: ConnectionsOptions): Connections {
  const { postgres, poolingOf, connectionsMax, connectTimeoutMs } = options
  const pools = new Map<string, Pool>()
  const plans = new WeakMap<pg.ClientBase, Map<string, Plan>>()
  const ended = new WeakMap<pg.ClientBase, Error>()
  const single = openGate(connectionsMax, connectTimeoutMs)

  function parse(connectionString: string) {
    if (!URL.canParse(connectionString)) throw new RefusedConnection('08001', 'the connection string is not a URL')
    const url = new URL(connectionString)
    if (!isSameAddress(postgres, url.hostname, Number(url.port || 5432))) {
      throw new RefusedConnection('08001', 'this proxy serves another Postgres than the connection string names')
    }
    const options = url.searchParams.get('options')
    return {
      host: postgres.host,
      port: postgres.port,
      user: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
      database: decodeURIComponent(url.pathname.slice(1)),
      application_name: url.searchParams.get('application_name') ?? undefined,
      connectionTimeoutMillis: connectTimeoutMs,
      // Statements of a batch go out together: they are one transaction, so the first failure stops the others.
      pipeline: true,
      ...(options ? { options } : {}),
    }
  }

  function knownPool(connectionString: string): Pool | undefined {
    const known = pools.get(connectionString)
    if (!known) return undefined
    // The oldest comes first: that is the one used longest ago.
    pools.delete(connectionString)
    pools.set(connectionString, known)
    return known
  }

  function newPool(connectionString: string, config: ReturnType<typeof parse>, pooling: Pooling): Pool {
    if (pools.size >= POOLS_MAX) evictOldestIdle()
    if (pools.size >= POOLS_MAX) throw new RefusedConnection('53300', 'too many different connection strings')
    const connections = new pg.Pool({ ...config, max: connectionsMax, idleTimeoutMillis: IDLE_MS })
    connections.on('error', ignore)
    // From its first moment on: the pool listens only to clients that are idle.
    connections.on('connect', (client) => client.on('error', (error) => ended.set(client, error)))
    const created = { connections, reset: pooling === 'reset' ? RESET : [] }
    pools.set(connectionString, created)
    return created
  }

  function evictOldestIdle() {
    for (const [connectionString, { connections }] of pools) {
      if (connections.totalCount !== connections.idleCount || connections.waitingCount > 0) continue
      pools.delete(connectionString)
      void connections.end()
      return
    }
  }

  async function acquire(connectionString: string): Promise<Lease> {
    const known = knownPool(connectionString)
    if (known) return acquirePooled(known)
    const config = parse(connectionString)
    const pooling = poolingOf(config.user)
    return pooling ? acquirePooled(newPool(connectionString, config, pooling)) : acquireSingle(config)
  }

  async function acquirePooled({ connections, reset }: Pool): Promise<Lease> {
    const client = await connections.connect()
    const error = ended.get(client)
    if (error) {
      client.release(true)
      throw error
    }
    return {
      ...sessionOf(client),
      plans: plansOf(client),
      reset,
      release(leaving) {
        const cleaning = [...(leaving === 'failed' ? ['ROLLBACK'] : []), ...(leaving === 'reset' ? [] : reset)]
        if (leaving === 'broken' || cleaning.length === 0) return client.release(leaving === 'broken')
        client.query(cleaning.join('; ')).then(
          () => client.release(false),
          () => client.release(true),
        )
      },
    }
  }

  function plansOf(client: pg.ClientBase): Map<string, Plan> {
    const known = plans.get(client)
    if (known) return known
    const created = new Map<string, Plan>()
    plans.set(client, created)
    return created
  }

  async function acquireSingle(config: ReturnType<typeof parse>): Promise<Lease> {
    await single.enter()
    const client = new pg.Client(config)
    client.on('error', ignore)
    try {
      await client.connect()
    } catch (error) {
      single.leave()
      throw error
    }
    return {
      ...sessionOf(client),
      reset: [],
      release: () => void client.end().finally(single.leave),
    }
  }

  async function close() {
    await Promise.all([...pools.values()].map(({ connections }) => connections.end()))
  }
  return { acquire, close }
}

function sessionOf(client: pg.ClientBase): Pick<Lease, 'client' | 'transactionStatus' | 'abort'> {
  const { connection, getTransactionStatus } = client as DriverClient
  return {
    client,
    transactionStatus: () => getTransactionStatus.call(client),
    abort: () => connection.stream.destroy(),
  }
}

// What every client of the driver has, and its types do not name.
interface DriverClient extends pg.ClientBase {
  connection: { stream: { destroy(): void } }
  getTransactionStatus(): string | null
}

// A lost connection fails the query that runs on it; the event itself needs no further answer.
function ignore() {}

/** Lets `max` in at a time; the others wait in order, `timeoutMs` at most. */
function openGate(max: number, timeoutMs: number) {
  let inside = 0
  const waiting = new Set<() => void>()

  function enter(): Promise<void> {
    if (inside < max) {
      inside += 1
      return Promise.resolve()
    }
    return new Promise((resolve, reject) => {
      const admit = () => {
        clearTimeout(timer)
        resolve()
      }
      const timer = setTimeout(() => {
        waiting.delete(admit)
        reject(new RefusedConnection('53300', 'too many connections'))
      }, timeoutMs)
      waiting.add(admit)
    })
  }

  function leave() {
    const [next] = waiting
    if (!next) {
      inside -= 1
      return
    }
    waiting.delete(next)
    next()
  }
  return { enter, leave }
}

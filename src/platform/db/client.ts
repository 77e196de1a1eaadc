import { AsyncLocalStorage } from 'node:async_hooks'
import { neon } from '@neondatabase/serverless'
import { type SQL, sql } from 'drizzle-orm'
import { drizzle, type NeonHttpDatabase } from 'drizzle-orm/neon-http'
import { drizzle as drizzleOverSocket } from 'drizzle-orm/neon-serverless'
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core'
import { ApiError } from '../http/error.ts'
import { type DatabaseAddress, route } from './control-database.ts'
import { isUnavailable } from './postgres-errors.ts'
import { connectClient, createClient } from './websocket-client.ts'

export type Db = NeonHttpDatabase
/** Query interface of services, the same inside and outside a transaction. */
export type Writer = PgDatabase<PgQueryResultHKT>

/** Executes a statement that is written as SQL and returns its rows. `Row` is not checked. */
export async function rowsOf<Row>(writer: Pick<Writer, 'execute'>, statement: SQL): Promise<Row[]> {
  const { rows } = (await writer.execute(statement)) as unknown as { rows: Row[] }
  return rows
}

/** Number of round trips of a request to the control database and to the database of its project. */
export interface QueryCount {
  queries?: number
  project_queries?: number
}

/** Query count of the current request, as all requests of an isolate share one database client. */
export const currentQueryCount = new AsyncLocalStorage<QueryCount>()

/** Counts a round trip of the current request. */
export function countQuery(kind: keyof QueryCount): void {
  const count = currentQueryCount.getStore()
  if (count) count[kind] = (count[kind] ?? 0) + 1
}

/** Opens a database in which each query or batch is one HTTP round trip. */
export function openDatabase(address: DatabaseAddress): Db {
  route(address)
  return drizzle(neon(address.url), { logger: { logQuery: () => countQuery('queries') } })
}

/** Builds a query once for each database instead of once for each request. */
export function prepareOnce<T>(prepare: (db: Db) => T): (db: Db) => T {
  const queries = new WeakMap<Db, T>()
  return (db) => {
    const known = queries.get(db)
    if (known !== undefined) return known
    const query = prepare(db)
    queries.set(db, query)
    return query
  }
}

/** A transaction is retried once if its session is lost before the commit, as it has had no effect. */
const ATTEMPTS = 2

interface TransactionOptions extends Omit<DatabaseAddress, 'egress'> {
  /** Maximum wait for a lock; unlimited if absent. A waiting transaction holds one of the database's sessions. */
  lockTimeoutMs?: number | undefined
}

/** Maximum wait of a request for a lock. */
export const REQUEST_LOCK_MS = 10_000

/**
 * Runs `work` in one transaction over a WebSocket, for the few decisions that must be taken inside it. Retries once if the session
 * is lost before the commit.
 */
export async function inTransaction<T>(options: TransactionOptions, work: (tx: Writer) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    let isCommitting = false
    let lost: unknown
    try {
      return await runTransaction(options, async (tx) => {
        const result = await work(tx).catch((error) => {
          lost = error
          throw error
        })
        isCommitting = true
        return result
      })
    } catch (error) {
      // If the session is lost, the rollback fails too and its error hides the first one.
      if (attempt === ATTEMPTS || isCommitting || !isUnavailable(lost ?? error)) throw lost ?? error
    }
  }
}

async function runTransaction<T>(
  { lockTimeoutMs = 0, ...address }: TransactionOptions,
  work: (tx: Writer) => Promise<T>,
): Promise<T> {
  const client = createClient(address.url, address)
  await connectClient(client).catch((cause) => {
    throw new ApiError('service_unavailable.control_database', { cause })
  })
  const tx = drizzleOverSocket(client)
  try {
    // Both statements in one round trip, which Drizzle's own transactions cannot do.
    await tx.execute(sql.raw(`begin; set local lock_timeout = ${lockTimeoutMs}`))
    const result = await work(tx)
    await tx.execute(sql`commit`)
    return result
  } catch (error) {
    await tx.execute(sql`rollback`)
    throw error
  } finally {
    // Not awaited: on a lost connection it never settles.
    void client.end().catch(() => {})
  }
}

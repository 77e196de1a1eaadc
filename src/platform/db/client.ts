import { AsyncLocalStorage } from 'node:async_hooks'
import { Client, neon } from '@neondatabase/serverless'
import type { SQL } from 'drizzle-orm'
import { drizzle, type NeonHttpDatabase } from 'drizzle-orm/neon-http'
import { drizzle as drizzleOverSocket } from 'drizzle-orm/neon-serverless'
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core'
import { ApiError } from '../http/error.ts'
import { type DatabaseAddress, route } from './control-database.ts'
import { isUnavailable } from './postgres-errors.ts'

export type Db = NeonHttpDatabase
/** What services write through: the same in a transaction and outside it. */
export type Writer = PgDatabase<PgQueryResultHKT>

/** The rows of a statement that is written as SQL; what it names them is the caller's word. */
export async function rowsOf<Row>(writer: Pick<Writer, 'execute'>, statement: SQL): Promise<Row[]> {
  const { rows } = (await writer.execute(statement)) as unknown as { rows: Row[] }
  return rows
}

/** Round trips of a request: to the control database, and to the database of its project. */
export interface QueryCount {
  queries?: number
  project_queries?: number
}

/** Whose round trips are being counted, as one database serves all requests of an isolate at the same time. */
export const countedFor = new AsyncLocalStorage<QueryCount>()

/** One more round trip of the request at hand. */
export function countQuery(kind: keyof QueryCount): void {
  const count = countedFor.getStore()
  if (count) count[kind] = (count[kind] ?? 0) + 1
}

const opened = new Map<string, Db>()

/** One HTTP round trip a query or batch. Kept for the isolate, as it is stateless and takes long to make. */
export function openDatabase(address: DatabaseAddress): Db {
  const { url, proxy } = address
  const name = `${url} ${proxy}`
  const known = opened.get(name)
  if (known) return known
  route(address)
  const db = drizzle(neon(url), { logger: { logQuery: () => countQuery('queries') } })
  opened.set(name, db)
  return db
}

/** A query whose text is made once for each database and not for each request. */
export function prepared<T>(prepare: (db: Db) => T): (db: Db) => T {
  const made = new WeakMap<Db, T>()
  return (db) => {
    const known = made.get(db)
    if (known !== undefined) return known
    const query = prepare(db)
    made.set(db, query)
    return query
  }
}

/** A session that was lost before the commit has done nothing. */
const TRIES = 2

/**
 * Runs `work` in one transaction over a WebSocket, for the few decisions that must be taken inside it; once more if the session
 * is lost before the transaction commits.
 */
export async function inTransaction<T>(
  address: Omit<DatabaseAddress, 'egress'>,
  work: (tx: Writer) => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    let isCommitting = false
    let lost: unknown
    try {
      return await runTransaction(address, async (tx) => {
        const result = await work(tx).catch((error) => {
          lost = error
          throw error
        })
        isCommitting = true
        return result
      })
    } catch (error) {
      // Where the session is lost, the rollback fails too, and hides why.
      if (tries === TRIES || isCommitting || !isUnavailable(lost ?? error)) throw lost ?? error
    }
  }
}

async function runTransaction<T>(
  { url, proxy, key }: Omit<DatabaseAddress, 'egress'>,
  work: (tx: Writer) => Promise<T>,
): Promise<T> {
  const client = new Client(url)
  if (proxy) {
    const { host, protocol } = new URL(proxy)
    const withKey = key === undefined ? '' : `&key=${encodeURIComponent(key)}`
    Object.assign(client.neonConfig, {
      wsProxy: (address: string, port: number) => `${host}/v2?address=${address}:${port}${withKey}`,
      useSecureWebSocket: protocol === 'https:',
      pipelineTLS: false,
      pipelineConnect: false,
    })
  }
  client.on('error', () => {})
  await connected(client)
  try {
    return await drizzleOverSocket(client).transaction(work)
  } finally {
    // Not awaited: on a connection that was lost it never settles.
    void client.end().catch(() => {})
  }
}

const CONNECT_TIMEOUT_MS = 10_000

/** Nothing was done yet, so the caller may simply try again. */
async function connected(client: Client): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no connection in ${CONNECT_TIMEOUT_MS} ms`)), CONNECT_TIMEOUT_MS)
  })
  try {
    await Promise.race([client.connect(), tooLate])
  } catch (cause) {
    drop(client)
    throw new ApiError('service_unavailable.control_database', { cause })
  } finally {
    clearTimeout(timer)
  }
}

/** One that comes after all would be held by nobody, and kept by the database. The driver's types hide the way to it. */
function drop(client: Client): void {
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } }
  connection.stream.destroy()
}

import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import type { Db } from '../../src/platform/db/client.ts'
import { newControlDatabase } from '../support/control-databases.ts'
import { counted } from './quiet.ts'
import type { Instance, World } from './world.ts'

type Row = Record<string, unknown>

/**
 * Limit for waiting for a lock. The wait is real and stops the simulation, so that the transaction that holds the lock
 * cannot continue: only one of two such transactions succeeds.
 */
export const LOCK_WAIT = '40ms'

export interface Database {
  url: string
  client: pg.Client
  /** Runs a query of the simulation itself, in no simulated time. */
  query<T = Row>(text: string, values?: unknown[]): Promise<T[]>
  drop(): Promise<void>
}

/** Makes a control database of its own on the cluster, so that nobody else's sweeper sees its rows. */
export async function createDatabase(adminUrl: string): Promise<Database> {
  const { name, url, drop } = await newControlDatabase(adminUrl, 'faults')
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  // The database's own settings do not apply to the superuser of instances.
  await client.query(`alter role current_user in database ${name} set lock_timeout = '${LOCK_WAIT}'`)
  await client.query(`set lock_timeout = '${LOCK_WAIT}'`)
  return {
    url,
    client,
    query: async <T>(text: string, values?: unknown[]) => (await counted(client.query(text, values))).rows as T[],
    async drop() {
      await client.end()
      await drop()
    },
  }
}

/** A placeholder in a statement's parameters for the database's clock at the moment of its execution. */
const NOW = '@simulated now'
export const databaseNow = sql`${NOW}::timestamptz`

/** The purpose of a statement, recognized by a text that only this one contains. */
const STATEMENTS: readonly (readonly [point: string, mark: RegExp])[] = [
  ['claim', /set claim =/],
  ['settle', /min\("delayMs"\)/],
  ['next due', /min\(greatest\(/],
  ['overdue', /recursive waiting/],
  ['disable', /webhook\.endpoint\.disable/],
  ['backlog', /"oldestDueMs"/],
  ['publish', /insert into "webhook_events"/],
  ['audit', /insert into "audit_log"/],
  ['begin', /^begin/],
  ['commit', /^commit/],
  ['rollback', /^rollback/],
]
export const pointOf = (text: string) => STATEMENTS.find(([, mark]) => mark.test(text))?.[0] ?? 'statement'

const LOCK_NOT_AVAILABLE = '55P03'

const names = new Map<string, string>()
function nameOf(text: string): string {
  const known = names.get(text)
  if (known) return known
  const name = `s${names.size}`
  names.set(text, name)
  return name
}

interface Query {
  text: string
  [setting: string]: unknown
}

/** Receives the executed statements, whether their answers arrive or not. */
export type Witness = (done: { instance: Instance; point: string; rows: Record<string, unknown>[] }) => void

/** The database as one instance sees it: each statement is a call, executed on a real connection. */
export function connect(world: World, { client }: Database, instance: Instance, witness: Witness): Db {
  const query = (config: Query, params: unknown[]) => {
    const point = pointOf(config.text)
    return world.call(instance, `database: ${point}`, '', async () => {
      const now = new Date(world.now()).toISOString()
      const values = params.map((value) => (value === NOW ? now : value))
      try {
        const value = await counted(client.query({ ...config, name: nameOf(config.text), values }))
        witness({ instance, point, rows: value.rows })
        return { value }
      } catch (error) {
        world.note(`   ${error}`)
        instance.faultedAt.push(world.now())
        // Another transaction of the simulation holds the lock: waiting for it would stop the simulation.
        const { code = '' } = error as { code?: string }
        if (code !== LOCK_NOT_AVAILABLE) world.broken(`${point}: ${error}`)
        return { error }
      }
    })
  }
  return drizzle({ client: { query } as unknown as pg.Client }) as unknown as Db
}

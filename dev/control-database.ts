import { fileURLToPath } from 'node:url'
import pg from 'pg'
import journal from '../drizzle/meta/_journal.json' with { type: 'json' }
import type { Host } from '../host/host.ts'
import { RANDOM_PASSWORD_ITERATIONS, scramVerifier } from '../src/engine/scram.ts'
import { StartError } from './start-error.ts'

const CONTROL_ROLE = 'pilothouse'
const DATABASE = 'pilothouse'
const MIGRATIONS = fileURLToPath(new URL('../drizzle', import.meta.url))

/** Creates the control plane's own instance, its role and database, and migrates the schema. */
export async function prepareControlDatabase(host: Host, password: string): Promise<string> {
  const instance = await host.pool.ensure({ name: 'control', sleepAfterSeconds: null })
  // A random password needs few iterations, and the Worker would repeat them for each of its transactions.
  const verifier = await scramVerifier(password, RANDOM_PASSWORD_ITERATIONS)
  const { rows } = instance.admin
  if ((await rows('SELECT FROM pg_roles WHERE rolname = $1', [CONTROL_ROLE])).length === 0) {
    await rows(`CREATE ROLE ${CONTROL_ROLE}`)
  }
  await rows(`ALTER ROLE ${CONTROL_ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '${verifier}'`)
  if ((await rows('SELECT FROM pg_database WHERE datname = $1', [DATABASE])).length === 0) {
    await rows(`CREATE DATABASE ${DATABASE} OWNER ${CONTROL_ROLE}`)
  }
  const controlUrl = controlUrlOf(host.gatewayPort, password)
  await migrateControlDatabase(controlUrl)
  return controlUrl
}

/** The connection string of the control database on this machine. */
export const controlUrlOf = (gatewayPort: number, password: string): string =>
  `postgresql://${CONTROL_ROLE}.control:${password}@127.0.0.1:${gatewayPort}/${DATABASE}`

/** Brings the schema up to date. Throws StartError if the database is older than the first migration can continue. */
export async function migrateControlDatabase(url: string): Promise<void> {
  await withClient(url, async (client) => {
    const last = await lastMigration(client)
    if (last !== undefined && last < FIRST_MIGRATION) throw new StartError(TOO_OLD)
    if (last !== undefined && last >= LAST_MIGRATION) return
    // Loaded late, because they are slow to load and a later start does not need them.
    const { drizzle } = await import('drizzle-orm/node-postgres')
    const { migrate } = await import('drizzle-orm/node-postgres/migrator')
    await migrate(drizzle(client), { migrationsFolder: MIGRATIONS })
  })
}

/** The first migration creates every table, so a database must have none of the tables or all. */
const TOO_OLD =
  'The control database is too old for this version: upgrade in two steps (docs/operations.md, Upgrade the software).'

/** The time of the last migration that the first one replaces, in epoch milliseconds. */
const FIRST_MIGRATION = journal.entries[0]?.when ?? 0
const LAST_MIGRATION = journal.entries.at(-1)?.when ?? 0

/** The time of the last migration that was applied, in epoch milliseconds; undefined if there was none. */
async function lastMigration(client: pg.Client): Promise<number | undefined> {
  const { rows } = await client.query("select to_regclass('drizzle.__drizzle_migrations') is not null as exists")
  if (!rows[0].exists) return undefined
  const { rows: applied } = await client.query('select max(created_at) as last from drizzle.__drizzle_migrations')
  return applied[0].last === null ? undefined : Number(applied[0].last)
}

/** Runs `work` with a connection that is closed afterwards. */
export async function withClient<Value>(
  connectionString: string,
  work: (client: pg.Client) => Promise<Value>,
): Promise<Value> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

import { fileURLToPath } from 'node:url'
import { drizzle } from 'drizzle-orm/node-postgres'
import { migrate } from 'drizzle-orm/node-postgres/migrator'
import pg from 'pg'

export const CONTROL_ROLE = 'pilothouse'
const DATABASE = 'pilothouse'
const MIGRATIONS = fileURLToPath(new URL('../drizzle', import.meta.url))

export interface ControlDatabase {
  adminUrl: string
  /** The control role's password; hex, so it needs no quoting. */
  password: string
}

/** Makes the control plane's role and database, closes them to projects, and brings the schema up to date. */
export async function prepareControlDatabase({ adminUrl, password }: ControlDatabase): Promise<string> {
  await withClient(adminUrl, async (client) => {
    await cheapenLogins(client, adminUrl)
    if (!(await exists(client, 'SELECT 1 FROM pg_roles WHERE rolname = $1', CONTROL_ROLE))) {
      await client.query(`CREATE ROLE ${CONTROL_ROLE}`)
    }
    await client.query(`ALTER ROLE ${CONTROL_ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '${password}'`)
    // Projects may use up all other connections; the control plane must still get in.
    await client.query(`GRANT pg_use_reserved_connections TO ${CONTROL_ROLE}`)
    if (!(await exists(client, 'SELECT 1 FROM pg_database WHERE datname = $1', DATABASE))) {
      await client.query(`CREATE DATABASE ${DATABASE} OWNER ${CONTROL_ROLE}`)
    }
    await client.query(`REVOKE CONNECT, TEMPORARY ON DATABASE postgres, template1, ${DATABASE} FROM PUBLIC`)
  })
  const controlUrl = controlUrlOf(adminUrl, password)
  await migrateControlDatabase(controlUrl)
  return controlUrl
}

/** Passwords that are random need no hard work, and the Worker would do it 4,096 times anew for each of its transactions. */
async function cheapenLogins(client: pg.Client, adminUrl: string): Promise<void> {
  await client.query('SET scram_iterations = 1')
  await client.query(`ALTER ROLE CURRENT_USER PASSWORD '${new URL(adminUrl).password}'`)
}

/** Where the control role finds its database on the cluster of `url`. */
export function controlUrlOf(url: string, password: string): string {
  const controlUrl = new URL(url)
  controlUrl.username = CONTROL_ROLE
  controlUrl.password = password
  controlUrl.pathname = `/${DATABASE}`
  return controlUrl.href
}

export async function migrateControlDatabase(url: string): Promise<void> {
  await withClient(url, (client) => migrate(drizzle(client), { migrationsFolder: MIGRATIONS }))
}

async function exists(client: pg.Client, query: string, name: string): Promise<boolean> {
  return (await client.query(query, [name])).rowCount === 1
}

async function withClient(connectionString: string, work: (client: pg.Client) => Promise<void>) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}

import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { guardChildren } from '../../dev/guard-children.ts'
import { startHost } from '../../host/host.ts'
import { createDatabase, type Database } from './database.ts'
import { createTenants, type Tenants } from './simulate.ts'
import { closeSockets } from './socket.ts'

export interface Ground {
  database: Database
  tenants: Tenants
}

/** Starts a Postgres of its own for the time of the work, unless the environment names one. */
export async function withCluster<T>(work: (ground: Ground) => Promise<T>): Promise<T> {
  const { FAULTS_ADMIN_URL: running } = process.env
  if (running) return withDatabase(running, work)
  const postgres = await startInstance()
  try {
    return await withDatabase(postgres.url, work)
  } finally {
    await postgres.stop()
  }
}

/** Starts a Postgres that is removed when it is stopped; `url` is its superuser's. */
export async function startInstance(): Promise<{ url: string; stop(): Promise<void> }> {
  guardChildren()
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-faults-'))
  const host = await startHost({ folder, key: randomBytes(32).toString('hex'), isDurable: false })
  await host.pool.ensure({ name: 'control', sleepAfterSeconds: null })
  return {
    url: host.adminUrl('control'),
    async stop() {
      await host.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export async function withDatabase<T>(adminUrl: string, work: (ground: Ground) => Promise<T>): Promise<T> {
  const database = await createDatabase(adminUrl)
  try {
    return await work({ database, tenants: await createTenants(database) })
  } finally {
    closeSockets()
    await database.drop()
  }
}

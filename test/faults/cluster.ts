import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { guardChildren } from '../../dev/guard.ts'
import { startPostgres } from '../../dev/postgres.ts'
import { createDatabase, type Database } from './database.ts'
import { createTenants, type Tenants } from './simulate.ts'
import { closeSockets } from './socket.ts'

export interface Ground {
  database: Database
  tenants: Tenants
}

/** A Postgres of its own for the time of the work, unless the environment names one. */
export async function withCluster<T>(work: (ground: Ground) => Promise<T>): Promise<T> {
  const { FAULTS_ADMIN_URL: running } = process.env
  if (running) return withDatabase(running, work)
  guardChildren()
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-faults-'))
  const postgres = await startPostgres({ folder: join(folder, 'postgres'), durable: false })
  try {
    return await withDatabase(postgres.url, work)
  } finally {
    await postgres.stop()
    rmSync(folder, { recursive: true, force: true })
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

import { readFile } from 'node:fs/promises'
import pg from 'pg'
import { afterAll, inject } from 'vitest'
import { type PostgresAddress, startNeonProxy } from '../../dev/neon-proxy.ts'
import type { ProjectEngine } from '../../src/engine/engine.ts'
import { createPostgresEngine } from '../../src/engine/postgres.ts'
import { PASSWORD } from '../projects.ts'
import { readCatalogue } from './copy-catalogue.ts'
import { connect } from './storage-database.ts'

export const RUNNER_PASSWORD = 'a runner'

export const newRef = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => String.fromCharCode(97 + (byte % 26))).join('')

export const specOf = (ref: string) => ({ ref, password: PASSWORD, runnerPassword: RUNNER_PASSWORD })

export const asOwner = (ref: string): Promise<pg.Client> =>
  connect(`p_${ref}`, { user: `p_${ref}`, password: PASSWORD })

/** The superuser's, with names in full, whatever is set for the database. */
export async function asAdmin(database: string): Promise<pg.Client> {
  const url = new URL(inject('adminUrl'))
  url.pathname = `/${database}`
  const settings = { search_path: 'pg_catalog', statement_timeout: 0, transaction_timeout: 0 }
  const forms = {
    standard_conforming_strings: 'on',
    quote_all_identifiers: 'off',
    extra_float_digits: 3,
    timezone: 'UTC',
  }
  const options = Object.entries({ ...settings, ...forms })
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ')
  const client = new pg.Client({ connectionString: url.href, options })
  await client.connect()
  return client
}

export async function withClient<Value>(opening: Promise<pg.Client>, work: (client: pg.Client) => Promise<Value>) {
  const client = await opening
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

export function clusterAddress(): PostgresAddress {
  const { hostname: host, port } = new URL(inject('adminUrl'))
  return { host, port: Number(port) }
}

/** An engine of the test's own, on the cluster of the run or what stands before it, and a proxy for it. */
export async function startEngine(
  postgres = clusterAddress(),
): Promise<{ engine: ProjectEngine; stop(): Promise<void> }> {
  const adminUrl = new URL(inject('adminUrl'))
  adminUrl.port = String(postgres.port)
  const proxy = await startNeonProxy({ postgres })
  const engine = createPostgresEngine({ adminUrl: adminUrl.href, proxy: proxy.url, ...postgres })
  return { engine, stop: proxy.stop }
}

/** For all tests of a file: an engine on the cluster of the run, and the superuser in it. */
export async function useEngine() {
  const { engine, stop } = await startEngine()
  const cluster = await asAdmin('postgres')
  afterAll(async () => {
    await cluster.end()
    await stop()
  })
  async function copyOf(from: string, data: boolean): Promise<string> {
    const to = newRef()
    await engine.copy({ from, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data })
    return to
  }

  return {
    engine,
    cluster,
    /** Returns the ref of the copy. */
    copyOf,
    /** Of a parent in which somebody sits. */
    copyOfUsed: (from: string, data: boolean) => withClient(asOwner(from), () => copyOf(from, data)),
  }
}

export const catalogueOf = (ref: string) =>
  withClient(asAdmin(`p_${ref}`), (client) => readCatalogue(client, `p_${ref}`))

/** A project with what its owner wrote, and nobody in it. */
export async function newParent(engine: ProjectEngine, sql: string): Promise<string> {
  const ref = newRef()
  await engine.create(specOf(ref))
  await withClient(asOwner(ref), (owner) => owner.query(sql))
  await untilIdle(ref)
  return ref
}

export async function untilIdle(ref: string): Promise<void> {
  await withClient(asAdmin('postgres'), async (admin) => {
    const used = () => admin.query('select from pg_stat_activity where datname = $1', [`p_${ref}`])
    while ((await used()).rows.length > 0) await admin.query('select pg_sleep(0.02)')
  })
}

/** Databases and roles that bear the ref, sorted. */
export async function leftOf(ref: string): Promise<string[]> {
  return withClient(asAdmin('postgres'), async (admin) => {
    const { rows } = await admin.query(
      `select datname as name from pg_database where starts_with(datname, $1)
       union all select rolname from pg_roles where starts_with(rolname, $1) order by 1`,
      [`p_${ref}`],
    )
    return rows.map(({ name }) => name)
  })
}

export async function countsOf(ref: string, tables: readonly string[]): Promise<number[]> {
  return withClient(asAdmin(`p_${ref}`), async (client) => {
    const counts: number[] = []
    for (const table of tables) counts.push((await client.query(`select count(*)::int as n from ${table}`)).rows[0].n)
    return counts
  })
}

export const everyKind = () => readFile(new URL('copy-fixture.sql', import.meta.url), 'utf8')

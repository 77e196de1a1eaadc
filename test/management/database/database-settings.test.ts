import type pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { type Caller, newApp, newOrganization, type TestOrganization, unhurried } from '../../support/api.ts'
import { cliOf } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = () => organization.owner.at(new Date())
})

const config = (project = ref) => `/v1/projects/${project}/config/database/postgres`
const read = async () => (await caller().get(config())).body
const reset = () => caller().put(config(), {})

/** Returns the user at a new minute for each call: many requests of one file would use up the user's quota. */
let clock: () => Caller
beforeAll(() => {
  clock = unhurried(organization.owner)
})
const caller = () => clock()

/** Runs work on a connection of the project's owner. */
async function asOwner<T>(work: (client: pg.Client) => Promise<T>, ssl = false, project = ref): Promise<T> {
  const client = ownerClient(project, {
    user: `postgres.${project}`,
    database: 'postgres',
    ssl: ssl && { rejectUnauthorized: false },
  })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
const show = (name: string) =>
  asOwner(async (client) => (await client.query(`select current_setting('${name}') as v`)).rows[0].v)

describe('GET and PATCH /v1/projects/{ref}/config/database/pooler', () => {
  const pooler = () => `/v1/projects/${ref}/config/database/pooler`
  const legacy = async () => (await caller().get(`/v1/projects/${ref}/config/database/pgbouncer`)).body

  it('accept a size and a mode, and return them', async () => {
    const connection_string = expect.stringContaining(`postgres.${ref}:[YOUR-PASSWORD]@`)
    expect((await caller().get(pooler())).body).toMatchObject([{ default_pool_size: null, pool_mode: 'session' }])
    const defaults = {
      default_pool_size: 20,
      ignore_startup_parameters: '',
      max_client_conn: 100,
      server_idle_timeout: 600,
      server_lifetime: 3_600,
      query_wait_timeout: 120,
      reserve_pool_size: 0,
    }
    expect(await legacy()).toEqual({ ...defaults, pool_mode: 'session', connection_string })
    const sized = await caller().patch(pooler(), { default_pool_size: 30 })
    expect(sized).toMatchObject({ status: 200, body: { default_pool_size: 30, pool_mode: 'session' } })
    const switched = await caller().patch(pooler(), { pool_mode: 'transaction' })
    expect(switched.body).toEqual({ default_pool_size: 30, pool_mode: 'transaction' })
    const unpooled = {
      default_pool_size: 30,
      pool_mode: 'transaction',
      db_host: inject('databaseHost'),
      connection_string,
    }
    expect((await caller().get(pooler())).body).toMatchObject([unpooled])
    const sizedAndSwitched = { default_pool_size: 30, pool_mode: 'transaction', connection_string }
    expect(await legacy()).toEqual({ ...defaults, ...sizedAndSwitched })
    const unset = await caller().patch(pooler(), { default_pool_size: null })
    expect(unset.body).toEqual({ default_pool_size: null, pool_mode: 'transaction' })
  })

  it.each([
    { default_pool_size: -1 },
    { default_pool_size: 3001 },
    { default_pool_size: 1.5 },
    { pool_mode: 'statement' },
  ])('refuse %o by name', async (body) => {
    const reply = await caller().patch(pooler(), body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(Object.keys(body)[0] ?? '') } })
  })
})

const GP3 = { type: 'gp3', iops: 3000, size_gb: 8 }

describe('the disk', () => {
  const disk = (more = '') => `/v1/projects/${ref}/config/disk${more}`

  it('has a size that can be set, and is measured live', async () => {
    const attributes = { type: 'gp3', iops: 3000, throughput_mibps: 125, size_gb: 8 }
    expect((await caller().get(disk())).body).toEqual({ attributes })
    const reply = await caller().post(disk(), { attributes: { ...GP3, size_gb: 2 } })
    expect(reply).toMatchObject({ status: 201, body: '' })
    expect(reply.headers.get('content-type')).toBeNull()
    const last_modified_at = expect.stringMatching(/^\d{4}-.*Z$/)
    expect((await caller().get(disk())).body).toEqual({ attributes: { ...attributes, size_gb: 2 }, last_modified_at })
    const databases = [{ disk_volume_size_gb: 2, disk_type: 'gp3', disk_throughput_mbps: 125 }]
    const one = await caller().get(`/v1/organizations/${organization.slug}/projects`)
    const listed = one.body.projects.find((project: { ref: string }) => project.ref === ref)
    expect(listed.databases).toMatchObject([{ ...databases[0], disk_last_modified_at: last_modified_at }])
    const { timestamp, metrics } = (await caller().get(disk('/util'))).body
    expect(Date.parse(timestamp)).toBeGreaterThan(0)
    expect(metrics.fs_size_bytes).toBe(2 * 1024 ** 3)
    expect(metrics.fs_used_bytes).toBeGreaterThan(1_000_000)
    expect(metrics.fs_used_bytes + metrics.fs_avail_bytes).toBe(metrics.fs_size_bytes)
    await runSql(owner(), ref, "create table filler as select repeat('x', 1000) from generate_series(1, 5000)")
    expect((await caller().get(disk('/util'))).body.metrics.fs_used_bytes).toBeGreaterThan(metrics.fs_used_bytes + 5e6)
    const autoscale = { growth_percent: null, min_increment_gb: null, max_size_gb: null }
    expect((await caller().get(disk('/autoscale'))).body).toEqual(autoscale)
  })

  it.each([
    ['size_gb', { ...GP3, size_gb: 0 }],
    ['size_gb', { ...GP3, size_gb: 65_537 }],
    ['iops', { ...GP3, iops: 0 }],
    ['iops', { ...GP3, iops: 16_000 }],
    ['throughput_mibps', { ...GP3, throughput_mibps: 500 }],
    ['type', { ...GP3, type: 'io2' }],
    ['type', { ...GP3, type: 'hdd' }],
  ])('refuses by %s: %o', async (field, attributes) => {
    const before = (await caller().get(disk())).body
    const reply = await caller().post(disk(), { attributes })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`body.attributes.${field}`) } })
    expect((await caller().get(disk())).body).toEqual(before)
  })
})

describe('SSL enforcement', () => {
  const path = () => `/v1/projects/${ref}/ssl-enforcement`
  const enforce = (database: boolean) => caller().put(path(), { requestedConfig: { database } })

  it('admits only encrypted connections, while SQL through the API goes on', async () => {
    const off = { currentConfig: { database: false }, appliedSuccessfully: true }
    const on = { currentConfig: { database: true }, appliedSuccessfully: true }
    expect((await caller().get(path())).body).toEqual(off)
    expect(await enforce(true)).toMatchObject({ status: 200, body: on })
    expect((await caller().get(path())).body).toEqual(on)
    const isEncrypted = async (client: pg.Client) => (await client.query('select 1 as v')).rows
    await expect(asOwner(isEncrypted)).rejects.toThrow('SSL connection is required')
    expect(await asOwner(isEncrypted, true)).toEqual([{ v: 1 }])
    expect((await runSql(owner(), ref, 'select 2 as v')).body).toEqual([{ v: 2 }])
    expect((await enforce(false)).body).toEqual(off)
    expect(await asOwner(isEncrypted)).toEqual([{ v: 1 }])
  })

  it('cannot be bypassed by settings of a project', async () => {
    await enforce(true)
    await caller().put(config(), { session_replication_role: 'replica' })
    await expect(asOwner(async () => {})).rejects.toThrow('SSL connection is required')
    await reset()
    await enforce(false)
  })

  it.each([{}, { requestedConfig: {} }, { requestedConfig: { database: 'yes' } }])(
    'refuses %o by name',
    async (body) => {
      const reply = await caller().put(path(), body)
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.requestedConfig') } })
    },
  )

  it('refuses a paused project, like read-only mode', async () => {
    const project = await newProject(organization)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    const requestedConfig = { database: true }
    expect(await caller().put(`/v1/projects/${project}/ssl-enforcement`, { requestedConfig })).toMatchObject({
      status: 409,
    })
    expect(await caller().post(`/v1/projects/${project}/readonly/temporary-disable`)).toMatchObject({ status: 409 })
  })
})

describe('a feature that the driver lacks', () => {
  const post = (path: string, body?: unknown) => caller().post(`/v1/projects/${ref}${path}`, body)

  it("is refused with the driver's name", async () => {
    const reply = await post('/database/webhooks/enable')
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('the driver host') } })
  })

  it.each([
    ['/read-replicas/setup', 'read_replica_region', { read_replica_region: 'mars-1' }],
    ['/read-replicas/remove', 'database_identifier', {}],
  ])('%s is still validated: %s', async (path, field, body) => {
    expect(await post(path, body)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`body.${field}`) },
    })
  })
})

describe('the supabase CLI', () => {
  extended('runs postgres-config get|update|delete and ssl-enforcement get|update', async () => {
    const run = cliOf(organization.owner)
    const cli = (...args: string[]) => run(...args, `--remote=${ref}`, '--yes')
    const settings = (verb: string, ...args: string[]) => cli('postgres-config', verb, ...args)
    await caller().put(config(), { statement_timeout: '11s', log_duration: true, work_mem: '5MB' })
    expect(await settings('get')).toContain('11s')
    await settings('update', '--config', 'max_connections=50', '--config', 'work_mem=6MB')
    const all = { statement_timeout: '11s', log_duration: true, work_mem: '6MB', max_connections: 50 }
    expect(await read()).toMatchObject(all)
    expect(await show('work_mem')).toBe('6MB')
    await settings('update', '--config', 'shared_buffers=24MB')
    expect(await show('shared_buffers')).toBe('24MB')
    await expect(settings('update', '--config', 'shared_buffers=900GB')).rejects.toThrow(
      /shared_buffers.*shared memory/,
    )
    await settings('delete', '--config', 'max_connections,work_mem,shared_buffers')
    expect(await read()).toMatchObject({ statement_timeout: '11s', log_duration: true, max_connections: 60 })
    const enforced = async () => (await caller().get(`/v1/projects/${ref}/ssl-enforcement`)).body.currentConfig.database
    await cli('ssl-enforcement', 'update', '--enable-db-ssl-enforcement')
    expect(await enforced()).toBe(true)
    expect(await cli('ssl-enforcement', 'get')).toMatch(/enforced/i)
    await cli('ssl-enforcement', 'update', '--disable-db-ssl-enforcement')
    expect(await enforced()).toBe(false)
  })
})

it('lets an application read or write by its scopes', async () => {
  const { caller: reader } = await newApp(organization, ['database:read'])
  expect((await reader.get(config())).status).toBe(200)
  expect((await reader.put(config(), {})).status).toBe(403)
  expect((await reader.get(`/v1/projects/${ref}/config/disk/util`)).status).toBe(200)
  expect((await reader.post(`/v1/projects/${ref}/config/disk`, { attributes: GP3 })).status).toBe(403)
  const { caller: writer } = await newApp(organization, ['database:write'])
  expect((await writer.patch(config(), {})).status).toBe(200)
  expect(
    (await writer.post(`/v1/projects/${ref}/read-replicas/setup`, { read_replica_region: 'us-east-1' })).status,
  ).toBe(403)
})

import { and, desc, eq } from 'drizzle-orm'
import pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { auditLog } from '../src/db/schema/index.ts'
import { type Caller, control, newApp, newOrganization, type TestOrganization, unhurried } from './api.ts'
import { cliOf } from './cli.ts'
import { extended } from './extended.ts'
import { newProject, ownerClient, runSql, untilStatus } from './projects.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
let admin: pg.Client
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = () => organization.owner.at(new Date())
  admin = new pg.Client({ connectionString: inject('adminUrl') })
  await admin.connect()
  return () => admin.end()
})

const config = (project = ref) => `/v1/projects/${project}/config/database/postgres`
const read = async () => (await caller().get(config())).body
const reset = () => caller().put(config(), {})

/** Many requests in a file: each user's tokens share a quota, so this one takes a new address of it a minute. */
let clock: () => Caller
beforeAll(() => {
  clock = unhurried(organization.owner)
})
const caller = () => clock()

/** What a client of the project's owner meets. */
async function asOwner<T>(work: (client: pg.Client) => Promise<T>, ssl = false, project = ref): Promise<T> {
  const client = ownerClient(project, { ssl: ssl && { rejectUnauthorized: false } })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
const show = (name: string) =>
  asOwner(async (client) => (await client.query(`select current_setting('${name}') as v`)).rows[0].v)

/** What the cluster holds about the project: all that a change could leave half-done. */
async function inCluster() {
  const { rows } = await admin.query(
    `select datconnlimit, (select json_agg(setconfig order by setrole) from pg_db_role_setting where setdatabase = d.oid) as settings
       from pg_database d where datname = 'p_${ref}'`,
  )
  return rows
}

/** One that is taken, and how a session shows it. */
const TAKEN: [field: string, value: unknown, shown?: string][] = [
  ['effective_cache_size', '64MB'],
  ['logical_decoding_work_mem', '32MB'],
  ['log_duration', true, 'on'],
  ['log_lock_waits', false, 'off'],
  ['log_replication_commands', true, 'on'],
  ['log_temp_files', '10MB'],
  ['maintenance_work_mem', '96MB'],
  ['max_parallel_maintenance_workers', 0, '0'],
  ['max_parallel_maintenance_workers', 1024, '1024'],
  ['max_parallel_workers', 3, '3'],
  ['max_parallel_workers_per_gather', 1, '1'],
  ['session_replication_role', 'local'],
  ['statement_timeout', '7s'],
  ['statement_timeout', '1.5min', '90s'],
  ['statement_timeout', '600', '600ms'],
  ['wal_sender_timeout', '2min'],
  ['work_mem', '12MB'],
  ['work_mem', '65', '65kB'],
]

/** Outside of what the API or Postgres takes. */
const WRONG: [field: string, value: unknown][] = [
  ['work_mem', 'much'],
  ['work_mem', '1kB'],
  ['work_mem', ''],
  ['work_mem', "8MB'; drop table x; --"],
  ['work_mem', 'x'.repeat(65)],
  ['work_mem', 8],
  ['effective_cache_size', '-1'],
  ['statement_timeout', '-5'],
  ['statement_timeout', '1 min'],
  ['statement_timeout', '25d'],
  ['statement_timeout', 'soon'],
  ['session_replication_role', 'none'],
  ['max_connections', 0],
  ['max_connections', 262_144],
  ['max_connections', 5_000],
  ['max_connections', 1.5],
  ['max_parallel_workers', -1],
  ['max_parallel_workers', 1_025],
  ['max_parallel_workers_per_gather', 1_025],
  ['max_parallel_maintenance_workers', '2'],
  ['log_duration', 'on'],
  ['pg_stat_statements.max', 99],
  ['pg_stat_statements.max', 45_001],
  ['pg_net.batch_size', 32_768],
  ['max_locks_per_transaction', 9],
]

/** Of the whole cluster, or of an extension that it does not run. */
const SHARED: [field: string, value: unknown][] = [
  ['shared_buffers', '128MB'],
  ['max_wal_size', '1GB'],
  ['wal_keep_size', '1GB'],
  ['max_slot_wal_keep_size', '1GB'],
  ['checkpoint_timeout', '5min'],
  ['autovacuum_max_workers', 3],
  ['autovacuum_work_mem', '64MB'],
  ['log_autovacuum_min_duration', '1s'],
  ['log_checkpoints', true],
  ['log_connections', true],
  ['log_disconnections', true],
  ['log_recovery_conflict_waits', true],
  ['log_startup_progress_interval', '10s'],
  ['track_activity_query_size', '2kB'],
  ['track_commit_timestamp', true],
  ['max_locks_per_transaction', 64],
  ['max_logical_replication_workers', 4],
  ['max_replication_slots', 5],
  ['max_standby_archive_delay', '30s'],
  ['max_standby_streaming_delay', '30s'],
  ['max_sync_workers_per_subscription', 2],
  ['max_wal_senders', 5],
  ['max_worker_processes', 8],
  ['hot_standby_feedback', true],
  ['pg_stat_statements.max', 100],
  ['pg_net.batch_size', 200],
  ['cron.log_statement', true],
]

describe('PATCH /v1/projects/{ref}/config/database/postgres', () => {
  it.each(TAKEN)(
    'takes %s = %s, gives it back as it came, and every new session has it',
    async (field, value, shown) => {
      await reset()
      const reply = await caller().patch(config(), { [field]: value })
      expect(reply).toMatchObject({ status: 200, body: { [field]: value } })
      expect(await read()).toEqual({ [field]: value })
      expect(await show(field)).toBe(shown ?? value)
    },
  )

  it.each(WRONG)('refuses %s = %s by name, and all that came with it', async (field, value) => {
    await caller().put(config(), { maintenance_work_mem: '80MB', max_connections: 60 })
    const before = await inCluster()
    const reply = await caller().patch(config(), { maintenance_work_mem: '81MB', max_connections: 61, [field]: value })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`body.${field}`) } })
    expect(await read()).toEqual({ maintenance_work_mem: '80MB', max_connections: 60 })
    expect(await inCluster()).toEqual(before)
  })

  it('refuses what needs the cluster, all of it by name, with the driver', async () => {
    await reset()
    const before = await inCluster()
    const { status, body } = await caller().patch(config(), { work_mem: '9MB', ...Object.fromEntries(SHARED) })
    expect(status).toBe(400)
    for (const [field] of SHARED) expect(body.message).toContain(`body.${field}: `)
    expect(body.message).toContain('driver postgres')
    expect(body.message).not.toContain('body.work_mem')
    expect(await read()).toEqual({})
    expect(await inCluster()).toEqual(before)
  })

  it('leaves alone what it does not name, also of two changes at the same time', async () => {
    await caller().put(config(), { work_mem: '5MB' })
    const changes = { statement_timeout: '9s', log_duration: true, max_parallel_workers: 2, max_connections: 44 }
    const replies = await Promise.all(
      Object.entries(changes).map(([field, value]) => owner().patch(config(), { [field]: value })),
    )
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(await read()).toEqual({ work_mem: '5MB', ...changes })
    expect(await show('statement_timeout')).toBe('9s')
    expect(await show('work_mem')).toBe('5MB')
  })

  it('is noted with the names of what changed', async () => {
    await reset()
    await caller().patch(config(), { work_mem: '6MB', statement_timeout: '8s' })
    const [entry] = await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, 'project.postgres.update')))
      .orderBy(desc(auditLog.createdAt))
      .limit(1)
    expect(entry).toMatchObject({ actorUserId: organization.userId, organizationId: organization.id })
    expect(entry?.detail.fields).toEqual(expect.arrayContaining(['work_mem', 'statement_timeout']))
  })

  it('lets in as many sessions as max_connections says, and keeps that through a pause', async () => {
    const project = await newProject(organization)
    const count = async (most: number) => {
      const clients: pg.Client[] = []
      const open = async () => {
        const client = ownerClient(project)
        await client.connect()
        clients.push(client)
      }
      let refused = ''
      while (clients.length < most && !refused) await open().catch(({ message }) => (refused = message))
      await Promise.all(clients.map((client) => client.end()))
      return [clients.length, refused]
    }
    await caller().patch(config(project), { max_connections: 3 })
    // The last session of the creation, as of the restore below, may still be there.
    await expect.poll(() => count(5)).toEqual([3, `too many connections for database "p_${project}"`])
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    expect(await caller().patch(config(project), { max_connections: 4 })).toMatchObject({ status: 409 })
    expect(await caller().put(config(project), { max_connections: 4 })).toMatchObject({ status: 409 })
    await organization.owner.post(`/v1/projects/${project}/restore`)
    await untilStatus(organization.owner, project, 'ACTIVE_HEALTHY')
    await expect.poll(async () => (await count(5))[0]).toBe(3)
    await caller().put(config(project), {})
    expect(await count(5)).toEqual([5, ''])
  })

  it('wins over what the owner has set for his role', async () => {
    await reset()
    await asOwner((client) =>
      client.query(
        `alter role p_${ref} set work_mem = '1MB'; alter role p_${ref} in database p_${ref} set work_mem = '2MB'`,
      ),
    )
    expect(await show('work_mem')).toBe('2MB')
    await caller().patch(config(), { work_mem: '3MB' })
    expect(await show('work_mem')).toBe('3MB')
  })

  it('ends the sessions that are open when it is to restart the database, and none else', async () => {
    await reset()
    await asOwner(async (client) => {
      await caller().patch(config(), { work_mem: '7MB', restart_database: false })
      expect((await client.query('show work_mem')).rows).toEqual([{ work_mem: '4MB' }])
      const reply = await caller().patch(config(), { work_mem: '8MB', restart_database: true })
      expect(reply).toMatchObject({ status: 200, body: { work_mem: '8MB' } })
      await expect(client.query('select 1')).rejects.toThrow()
    })
    expect(await show('work_mem')).toBe('8MB')
  })

  it('answers 503 where there is no database', async () => {
    const project = await newProject(organization)
    await admin.query(`drop database p_${project} with (force)`)
    for (const send of [caller().patch, caller().put]) {
      expect(await send(config(project), { work_mem: '8MB' })).toMatchObject({ status: 503 })
    }
    expect((await caller().get(config(project))).body).toEqual({})
    for (const reply of [
      await caller().get(`/v1/projects/${project}/config/disk/util`),
      await caller().post(`/v1/projects/${project}/config/disk`, { attributes: GP3 }),
      await caller().put(`/v1/projects/${project}/ssl-enforcement`, { requestedConfig: { database: true } }),
      await caller().post(`/v1/projects/${project}/network-restrictions/apply`, { dbAllowedCidrs: ['10.0.0.0/8'] }),
      await caller().patch(`/v1/projects/${project}/network-restrictions`, { add: { dbAllowedCidrs: ['10.0.0.0/8'] } }),
    ])
      expect(reply).toMatchObject({ status: 503, body: { message: expect.stringContaining('cannot be reached') } })
  })
})

describe('PUT /v1/projects/{ref}/config/database/postgres', () => {
  it('takes back what it does not name', async () => {
    await caller().put(config(), { work_mem: '5MB', statement_timeout: '5s', max_connections: 50 })
    const reply = await caller().put(config(), { statement_timeout: '6s', max_connections: 51 })
    expect(reply).toMatchObject({ status: 200, body: { statement_timeout: '6s', max_connections: 51 } })
    expect(reply.body).not.toHaveProperty('work_mem')
    expect(await read()).toEqual(reply.body)
    expect(await show('work_mem')).toBe('4MB')
    expect(await reset()).toMatchObject({ status: 200, body: {} })
    expect(await inCluster()).toMatchObject([{ datconnlimit: -1 }])
    expect(await show('statement_timeout')).toBe('0')
  })

  it('takes what GET gave, and changes nothing by it', async () => {
    await caller().put(config(), { work_mem: '5MB', log_duration: true, max_parallel_workers: 4, max_connections: 50 })
    const before = await inCluster()
    const given = await read()
    expect((await caller().put(config(), given)).body).toEqual(given)
    expect(await inCluster()).toEqual(before)
  })
})

describe('GET and PATCH /v1/projects/{ref}/config/database/pooler', () => {
  const pooler = () => `/v1/projects/${ref}/config/database/pooler`
  const legacy = async () => (await caller().get(`/v1/projects/${ref}/config/database/pgbouncer`)).body

  it('keep a size and a mode, and show them', async () => {
    const connection_string = expect.stringContaining(`p_${ref}:[YOUR-PASSWORD]@`)
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

  it('lets in encrypted connections alone, while SQL through the API goes on', async () => {
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

  it('cannot be got around by what a project is set to', async () => {
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

  it('refuses a paused project, as read-only mode does', async () => {
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

describe('what the driver has not', () => {
  const post = (path: string, body?: unknown) => caller().post(`/v1/projects/${ref}${path}`, body)

  it('is refused in its name', async () => {
    for (const reply of [
      await post('/upgrade', { target_version: '19' }),
      await post('/database/webhooks/enable'),
      await post('/read-replicas/setup', { read_replica_region: 'us-east-1' }),
      await post('/read-replicas/remove', { database_identifier: ref }),
    ]) {
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('the driver postgres') } })
    }
    const status = await caller().get(`/v1/projects/${ref}/upgrade/status?tracking_id=x`)
    expect(status).toMatchObject({ status: 200, body: { databaseUpgradeStatus: null } })
  })

  it.each([
    ['/upgrade', 'target_version', {}],
    ['/upgrade', 'release_channel', { target_version: '18', release_channel: 'nightly' }],
    ['/read-replicas/setup', 'read_replica_region', { read_replica_region: 'mars-1' }],
    ['/read-replicas/remove', 'database_identifier', {}],
  ])('%s is validated all the same: %s', async (path, field, body) => {
    expect(await post(path, body)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`body.${field}`) },
    })
  })
})

describe('the supabase CLI', () => {
  extended(
    'does postgres-config get|update|delete and ssl-enforcement get|update',
    async () => {
      const run = cliOf(organization.owner)
      const cli = (...args: string[]) => run(...args, `--remote=${ref}`, '--yes')
      const settings = (verb: string, ...args: string[]) => cli('postgres-config', verb, ...args)
      await caller().put(config(), { statement_timeout: '11s', log_duration: true, work_mem: '5MB' })
      expect(await settings('get')).toContain('11s')
      await settings('update', '--config', 'max_connections=50', '--config', 'work_mem=6MB')
      const all = { statement_timeout: '11s', log_duration: true, work_mem: '6MB', max_connections: 50 }
      expect(await read()).toEqual(all)
      expect(await show('work_mem')).toBe('6MB')
      await expect(settings('update', '--config', 'shared_buffers=1GB')).rejects.toThrow(
        /shared_buffers.*driver postgres/,
      )
      await settings('delete', '--config', 'max_connections,work_mem')
      expect(await read()).toEqual({ statement_timeout: '11s', log_duration: true })
      const enforced = async () =>
        (await caller().get(`/v1/projects/${ref}/ssl-enforcement`)).body.currentConfig.database
      await cli('ssl-enforcement', 'update', '--enable-db-ssl-enforcement')
      expect(await enforced()).toBe(true)
      expect(await cli('ssl-enforcement', 'get')).toMatch(/enforced/i)
      await cli('ssl-enforcement', 'update', '--disable-db-ssl-enforcement')
      expect(await enforced()).toBe(false)
    },
    90_000,
  )
})

it('lets an application read or write as its scopes say', async () => {
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

import { and, desc, eq } from 'drizzle-orm'
import type pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { askHost, onHost } from '../../instances.ts'
import { type Caller, control, newOrganization, type TestOrganization, tick, unhurried } from '../../support/api.ts'
import { newProject, ownerClient, untilStatus } from '../../support/projects.ts'
import { insertProject } from '../../support/webhooks.ts'

let organization: TestOrganization
let ref: string
let caller: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  caller = unhurried(organization.owner)
})

const config = (project = ref) => `/v1/projects/${project}/config/database/postgres`
const read = async () => (await caller().get(config())).body
const reset = () => caller().put(config(), {})

/** Runs work on a connection of the project's owner. */
async function asOwner<T>(work: (client: pg.Client) => Promise<T>, project = ref): Promise<T> {
  const client = ownerClient(project, { user: `postgres.${project}`, database: 'postgres' })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end().catch(() => {})
  }
}
const show = (name: string) =>
  asOwner(async (client) => (await client.query(`select current_setting('${name}') as v`)).rows[0].v)

/** Counts by their log how often the project's server started during `work`. */
async function startsDuring(work: () => Promise<unknown>): Promise<number> {
  const logs = await askHost<{ name: string; end: string }[]>('GET', '/logs')
  const { end } = logs.find(({ name }) => name === ref) ?? {}
  await work()
  const { lines } = await askHost<{ lines: object[] }>('GET', `/instances/${ref}/logs?since=${end}`)
  return JSON.stringify(lines).split('ready to accept connections').length - 1
}

/** Accepted settings, with their value and how a session shows it. */
const TAKEN: [field: string, value: unknown, shown?: string][] = [
  ['statement_timeout', '1.5min', '90s'],
  ['statement_timeout', '600', '600ms'],
  ['work_mem', '65', '65kB'],
  ['log_lock_waits', false, 'off'],
  ['max_parallel_maintenance_workers', 1024, '1024'],
]

/** All settings that an instance without further extensions accepts, each with another value than its default. */
const ALL = {
  autovacuum_max_workers: 4,
  autovacuum_work_mem: '64MB',
  checkpoint_timeout: '7min',
  effective_cache_size: '64MB',
  hot_standby_feedback: true,
  log_autovacuum_min_duration: '1s',
  log_checkpoints: false,
  log_connections: true,
  log_disconnections: true,
  log_duration: true,
  log_lock_waits: true,
  log_recovery_conflict_waits: true,
  log_replication_commands: true,
  log_startup_progress_interval: '11s',
  log_temp_files: '10MB',
  logical_decoding_work_mem: '32MB',
  maintenance_work_mem: '96MB',
  max_connections: 70,
  max_locks_per_transaction: 65,
  max_logical_replication_workers: 3,
  max_parallel_maintenance_workers: 0,
  max_parallel_workers: 3,
  max_parallel_workers_per_gather: 0,
  max_replication_slots: 5,
  max_slot_wal_keep_size: '2GB',
  max_standby_archive_delay: '31s',
  max_standby_streaming_delay: '32s',
  max_sync_workers_per_subscription: 1,
  max_wal_senders: 5,
  max_wal_size: '128MB',
  max_worker_processes: 7,
  'pg_stat_statements.max': 500,
  session_replication_role: 'local',
  shared_buffers: '20MB',
  statement_timeout: '7s',
  track_activity_query_size: '2kB',
  track_commit_timestamp: true,
  wal_keep_size: '5MB',
  wal_sender_timeout: '2min',
  work_mem: '12MB',
}

/** Values that the API or Postgres refuses. */
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
  ['max_connections', 13],
  ['max_connections', 200_000],
  ['shared_buffers', '900GB'],
  ['max_wal_size', '1MB'],
  ['max_replication_slots', -5],
  ['checkpoint_timeout', '1s'],
  ['pg_net.batch_size', 200],
  ['cron.log_statement', true],
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

describe('PATCH /v1/projects/{ref}/config/database/postgres', () => {
  it('accepts all settings at once, and every new session has them', async () => {
    expect(await caller().patch(config(), ALL)).toMatchObject({ status: 200, body: ALL })
    expect(await read()).toEqual(ALL)
    for (const [name, value] of Object.entries(ALL)) {
      const text = typeof value === 'boolean' ? (value ? 'on' : 'off') : String(value)
      expect([name, await show(name)]).toEqual([name, text])
    }
    await reset()
  })

  it.each(TAKEN)('accepts %s = %s, returns it as it was written, and sessions have it', async (field, value, shown) => {
    expect(await caller().patch(config(), { [field]: value })).toMatchObject({
      status: 200,
      body: { [field]: value },
    })
    expect(await read()).toMatchObject({ [field]: value })
    expect(await show(field)).toBe(shown)
    await reset()
  })

  it.each(WRONG)('refuses %s = %s by name, with all fields of the request', async (field, value) => {
    const before = await read()
    const reply = await caller().patch(config(), { maintenance_work_mem: '81MB', max_connections: 61, [field]: value })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`body.${field}`) } })
    expect(await read()).toEqual(before)
  })

  it('keeps the settings that it does not name, also with two simultaneous changes', async () => {
    await caller().put(config(), { work_mem: '5MB' })
    const changes = { statement_timeout: '9s', log_duration: true, max_parallel_workers: 1, max_connections: 64 }
    const replies = await Promise.all(
      Object.entries(changes).map(([field, value]) => caller().patch(config(), { [field]: value })),
    )
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(await read()).toMatchObject({ work_mem: '5MB', ...changes })
    expect(await show('statement_timeout')).toBe('9s')
  })

  it('is recorded with the names of the changed settings', async () => {
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

  it('restarts once for a value that needs it, unless the restart is deferred', async () => {
    await reset()
    await caller().patch(config(), { max_connections: 66, restart_database: false })
    expect(await read()).toMatchObject({ max_connections: 60 })
    const patch = (settings: object) => startsDuring(() => caller().patch(config(), settings))
    expect(await patch({ work_mem: '7MB' })).toBe(0)
    expect([await show('work_mem'), await show('max_connections')]).toEqual(['7MB', '60'])
    expect(await patch({ restart_database: true })).toBe(1)
    expect(await read()).toMatchObject({ max_connections: 66, work_mem: '7MB' })
    expect(await patch({ max_connections: 67, restart_database: true })).toBe(1)
    expect(await read()).toMatchObject({ max_connections: 67 })
    await reset()
    expect(await show('max_connections')).toBe('60')
  })

  it('keeps its values through a pause, in which they can be changed', async () => {
    await caller().put(config(), { shared_buffers: '18MB' })
    await organization.owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(organization.owner, ref, 'INACTIVE')
    expect(await read()).toEqual({ shared_buffers: '18MB' })
    const changed = { shared_buffers: '18MB', max_connections: 64 }
    const reply = await caller().patch(config(), { max_connections: 64, restart_database: true })
    expect(reply).toMatchObject({ status: 200, body: changed })
    expect(await caller().put(config(), { shared_buffers: '900GB' })).toMatchObject({ status: 400 })
    expect(await read()).toEqual(changed)
    await organization.owner.post(`/v1/projects/${ref}/restore`)
    await untilStatus(organization.owner, ref, 'ACTIVE_HEALTHY')
    expect([await show('shared_buffers'), await show('max_connections')]).toEqual(['18MB', '64'])
    await reset()
  })

  it('refuses a project that is about to change its state', async () => {
    const project = await insertProject(organization, { status: 'PAUSING' })
    for (const send of [caller().patch, caller().put])
      expect(await send(config(project), { work_mem: '5MB' })).toMatchObject({ status: 409 })
  })
})

describe('PUT /v1/projects/{ref}/config/database/postgres', () => {
  it('resets the settings that it does not name', async () => {
    await caller().put(config(), { work_mem: '5MB', statement_timeout: '5s', max_connections: 70 })
    const reply = await caller().put(config(), { statement_timeout: '6s', max_connections: 71 })
    expect(reply).toMatchObject({
      status: 200,
      body: { statement_timeout: '6s', max_connections: 71, work_mem: '2MB' },
    })
    expect(await read()).toEqual(reply.body)
    expect(await show('work_mem')).toBe('2MB')
    expect(await reset()).toMatchObject({ status: 200, body: { statement_timeout: '0', max_connections: 60 } })
  })

  it('sets only the changed values of everything that GET returned', async () => {
    await reset()
    const given = await read()
    await caller().put(config(), { ...given, work_mem: '6MB' })
    const entry = control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    const [{ detail } = {}] = await entry.orderBy(desc(auditLog.createdAt)).limit(1)
    expect(detail).toMatchObject({ fields: ['work_mem'] })
    const { work_mem: _taken, ...others } = await read()
    await caller().put(config(), others)
    expect(await read()).toEqual(given)
  })

  it('keeps a value that is not in force yet if it gets the effective one, which GET returned', async () => {
    await reset()
    await caller().patch(config(), { max_connections: 66, restart_database: false })
    const given = await read()
    expect(given).toMatchObject({ max_connections: 60 })
    await caller().put(config(), { ...given, work_mem: '6MB', restart_database: true })
    expect(await read()).toEqual({ ...given, max_connections: 66, work_mem: '6MB' })
    await reset()
  })
})

describe('GET /v1/projects/{ref}/config/database/postgres', () => {
  it('shows the values of the running server, in the types of the API', async () => {
    await reset()
    const shown = await read()
    expect(shown).toMatchObject({
      autovacuum_work_mem: '-1',
      checkpoint_timeout: '5min',
      hot_standby_feedback: false,
      log_checkpoints: true,
      log_connections: false,
      log_autovacuum_min_duration: '10min',
      max_connections: 60,
      max_locks_per_transaction: 64,
      session_replication_role: 'origin',
      shared_buffers: '16MB',
      statement_timeout: '0',
    })
    expect(Object.keys(shown).sort()).toEqual(Object.keys(ALL).sort())
    await asOwner((client) => client.query(`alter database postgres set work_mem = '3MB'`))
    expect(await read()).toMatchObject({ work_mem: '3MB' })
    await asOwner((client) => client.query('alter database postgres reset work_mem'))
  })
})

describe('PATCH /v1/projects/{ref}/billing/addons', () => {
  it('gives a project the values of its size, and keeps the settings', async () => {
    const { owner } = organization
    await caller().put(config(), { work_mem: '6MB' })
    const addon = { addon_type: 'compute_instance', addon_variant: 'ci_small' }
    expect(await owner.patch(`/v1/projects/${ref}/billing/addons`, addon)).toMatchObject({ status: 200 })
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect(await read()).toMatchObject({ max_connections: 90, shared_buffers: '512MB', work_mem: '6MB' })
    expect((await owner.get(`/v1/projects/${ref}/billing/addons`)).body.selected_addons).toMatchObject([
      { type: 'compute_instance', variant: { id: 'ci_small' } },
    ])
    expect((await owner.delete(`/v1/projects/${ref}/billing/addons/ci_small`)).status).toBe(200)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect(await show('max_connections')).toBe('60')
  })

  it.each([
    ['the new server does not answer', { stepsDone: ['resize'], attempts: 5 }],
    ['its consumers died', { stepsDone: [], attempts: 6 }],
  ])('reports a project as unhealthy until its database answers if %s', async (_, task) => {
    const { owner } = organization
    await onHost(ref, 'pause')
    await control.update(projects).set({ status: 'RESIZING' }).where(eq(projects.ref, ref))
    await control
      .insert(projectTasks)
      .values({ projectRef: ref, kind: 'resize', input: { size: 'small' }, dueAt: new Date(0), ...task })
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_UNHEALTHY')
    await onHost(ref, 'resume')
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  })
})

import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3'
import { and, desc, eq, inArray, sql } from 'drizzle-orm'
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, vi } from 'vitest'
import { readCommand } from '../../../dev/admin/commands.ts'
import {
  auditLog,
  backups,
  heartbeats,
  organizations,
  projectSettings,
  projects,
  projectTasks,
  webhookEvents,
} from '../../../src/model/tables/index.ts'
import { adminClient, adminRows, askHost } from '../../instances.ts'
import {
  type Caller,
  control,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
  tick,
  tokenOf,
} from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { newBranch, untilBranch } from '../../support/branches.ts'
import { cliOf } from '../../support/cli.ts'
import { extended, isExtended } from '../../support/extended.ts'
import { newProject, ownerClient, PASSWORD, runSql, until, untilGone } from '../../support/projects.ts'
import { clientOf, newBucket, newStorage } from '../../support/storage.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { insertProject } from '../../support/webhooks.ts'

/** A long timeout: copies, sweeps and restarts take turns with those of all other tests. */
vi.setConfig({ testTimeout: 90_000 })
const WAIT = { timeout: WAIT_MS, interval: 250 }

const newRef = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => String.fromCharCode(97 + (byte % 26))).join('')

const path = (ref: string, rest = '') => `/v1/projects/${ref}/database/backups${rest}`

/** Returns the ids of the project's backups in the archive. */
async function archived(ref: string): Promise<number[]> {
  const found = await askHost<{ id: string }[]>('GET', `/instances/${ref}/backups`)
  return found.map(({ id }) => Number(id)).sort((a, b) => a - b)
}

const makeBackup = (ref: string, id: number) => askHost('PUT', `/instances/${ref}/backups/${id}`)

const { endpoint, bucket: Bucket, ...credentials } = inject('s3')
const bytes = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })

/** Returns the keys with a prefix. */
async function keysOf(Prefix: string): Promise<string[]> {
  const { Contents = [] } = await bytes.send(new ListObjectsV2Command({ Bucket, Prefix }))
  return Contents.map(({ Key = '' }) => Key)
}

async function damageBackup(ref: string, id: number): Promise<void> {
  const Key = `backups/${ref}/base/${id}.tar`
  const { Body } = await bytes.send(new GetObjectCommand({ Bucket, Key }))
  const changed = Buffer.from((await Body?.transformToByteArray()) ?? [])
  changed[5_000] = Number(changed[5_000]) ^ 1
  await bytes.send(new PutObjectCommand({ Bucket, Key, Body: changed }))
}

async function connectTo(ref: string): Promise<pg.Client> {
  const client = ownerClient(ref)
  await client.connect()
  return client
}

const latestId = async (ref: string) => {
  const [row] = await control
    .select()
    .from(backups)
    .where(eq(backups.projectRef, ref))
    .orderBy(desc(backups.id))
    .limit(1)
  return row?.id ?? 0
}

const untilPoint = (caller: Caller, ref: string, name: string, status: string): Promise<void> =>
  until(caller, {
    timeoutMs: WAIT.timeout,
    inDatabase: async () => expect(await openTasks(ref)).toBe(0),
    inApi: async () =>
      expect((await caller.get(path(ref, `/restore-point?name=${name}`))).body).toMatchObject({ name, status }),
  })

/** Makes a complete restore point and returns the id of its backup. */
async function newPoint(caller: Caller, ref: string, name: string): Promise<number> {
  expect(await caller.post(path(ref, '/restore-point'), { name })).toMatchObject({ status: 201 })
  const id = await latestId(ref)
  await untilPoint(caller, ref, name, 'AVAILABLE')
  return id
}

/** Queries the control database, because so many requests a minute are too many for the API. */
const untilProject = (ref: string, status: string) =>
  vi.waitFor(async () => {
    expect(await control.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))).toEqual([
      { status },
    ])
  }, WAIT)

const openTasks = async (ref: string) =>
  (
    await control.$client.query(
      `select from project_tasks where project_ref = $1 and state in ('pending', 'running')`,
      [ref],
    )
  ).rows.length

/** Runs the open task of the project until its last attempt has failed. */
const untilFailed = (ref: string) =>
  vi.waitFor(async () => {
    const where = and(eq(projectTasks.projectRef, ref), eq(projectTasks.state, 'pending'))
    await control
      .update(projectTasks)
      .set({ attempts: 5, dueAt: new Date(0) })
      .where(where)
    await tick()
    expect(await openTasks(ref)).toBe(0)
  }, WAIT)

const actionsOf = async (ref: string) =>
  (await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))).map(({ action }) => action)

async function eventsOf(ref: string): Promise<string[]> {
  const rows = await control
    .select()
    .from(webhookEvents)
    .where(eq(webhookEvents.projectRef, ref))
    .orderBy(webhookEvents.id)
  return rows.map(({ type }) => type)
}

describe('a restore point', () => {
  let organization: TestOrganization
  let owner: Caller
  let ref: string
  const query = async (text: string) => {
    const reply = await runSql(owner, ref, text)
    expect(reply).toMatchObject({ status: 201 })
    return reply.body
  }
  beforeAll(async () => {
    organization = await newOrganization()
    owner = organization.owner
    ref = await newProject(organization)
    await query('create table t (n int); insert into t values (1)')
  })

  it('is a sealed copy of the files, and is listed as a backup', async () => {
    expect((await owner.get(path(ref))).body).toEqual({
      region: 'us-east-1',
      walg_enabled: true,
      pitr_enabled: false,
      backups: [],
      physical_backup_data: {},
    })
    expect((await owner.get(path(ref, '/restore-point'))).status).toBe(404)
    const none = await owner.post(path(ref, '/restore-pitr'), { recovery_time_target_unix: 1_700_000_000 })
    expect(none).toMatchObject({ status: 400, body: { message: 'PITR is not enabled for this project.' } })
    expect(none.body.hint).toBe('backups: there is none yet; a restore point or a scheduled backup makes the first')
    await query(`comment on table t is 'a text that nobody reads in the bucket'`)
    const created = await owner.post(path(ref, '/restore-point'), { name: 'first' })
    expect(created.status).toBe(201)
    expect(created.body).toEqual({ name: 'first', status: 'PENDING', completed_on: null })
    await untilPoint(owner, ref, 'first', 'AVAILABLE')
    const { body: point } = await owner.get(path(ref, '/restore-point'))
    expect(point).toEqual({ name: 'first', status: 'AVAILABLE', completed_on: expect.stringMatching(/Z$/) })
    const id = await latestId(ref)
    const { body: list } = await owner.get(path(ref))
    const insertedAt = list.backups[0].inserted_at
    expect(list.backups).toEqual([{ id, is_physical_backup: true, status: 'COMPLETED', inserted_at: insertedAt }])
    expect(await archived(ref)).toEqual([id])
    const keys = await keysOf(`backups/${ref}/base/`)
    expect(keys).toEqual([`backups/${ref}/base/${id}.json`, `backups/${ref}/base/${id}.tar`])
    for (const Key of keys) {
      const { Body } = await bytes.send(new GetObjectCommand({ Bucket, Key }))
      expect(Buffer.from((await Body?.transformToByteArray()) ?? []).includes('nobody reads')).toBe(false)
    }
    expect(await actionsOf(ref)).toEqual(expect.arrayContaining(['backup.create', 'project.backup.done']))
    expect(await eventsOf(ref)).toContain('v1.project.backup.started')
  })

  it('restores the database as it was, under its present settings', async () => {
    const client = await connectTo(ref)
    const settings = { max_connections: 33, work_mem: '7MB' }
    expect((await owner.put(`/v1/projects/${ref}/config/database/postgres`, settings)).status).toBe(200)
    const ssl = (database: boolean) =>
      owner.put(`/v1/projects/${ref}/ssl-enforcement`, { requestedConfig: { database } })
    expect((await ssl(true)).status).toBe(200)
    await query('insert into t values (2); create table later ()')
    expect((await owner.post(path(ref, '/undo'), { name: 'first' })).status).toBe(201)
    await untilProject(ref, 'ACTIVE_HEALTHY')
    expect(await query('select n from t')).toEqual([{ n: 1 }])
    const now = `select to_regclass('later') is null as gone, current_setting('work_mem') as mem,
      current_setting('max_connections') as connections`
    expect(await query(now)).toEqual([{ gone: true, mem: '7MB', connections: '33' }])
    await expect(client.query('select 1')).rejects.toThrow()
    expect(await archived(ref)).toEqual([await latestId(ref)])
    await expect(connectTo(ref)).rejects.toThrow()
    expect((await ssl(false)).status).toBe(200)
    const again = await connectTo(ref)
    await again.query('create table after_restore ()')
    await again.end()
    expect(await actionsOf(ref)).toEqual(expect.arrayContaining(['backup.restore', 'project.restore_backup.done']))
    expect((await eventsOf(ref)).filter((type) => type === 'v1.project.status.changed').length).toBeGreaterThan(2)
  })

  it('can also be restored by the id of its backup, any number of times', async () => {
    const id = await latestId(ref)
    for (const round of [1, 2]) {
      await query(`insert into t values (${round})`)
      expect((await owner.post(path(ref, '/restore'), { id })).status).toBe(201)
      await untilProject(ref, 'ACTIVE_HEALTHY')
      expect(await query('select n from t')).toEqual([{ n: 1 }])
    }
  })

  it('is made once, however many requests arrive at once', async () => {
    const place = await newOrganization()
    const project = await newProject(place)
    const asked = await Promise.all(
      [1, 2, 3].map(() => place.owner.post(path(project, '/restore-point'), { name: 'x' })),
    )
    expect(asked.map(({ status }) => status).sort()).toEqual([201, 409, 409])
    expect(await control.select().from(backups).where(eq(backups.projectRef, project))).toHaveLength(1)
  })

  it('has a name of its own', async () => {
    const taken = await owner.post(path(ref, '/restore-point'), { name: 'first' })
    expect(taken).toMatchObject({ status: 409, body: { message: 'Restore point name already in use' } })
    const missing = await owner.post(path(ref, '/undo'), { name: 'none' })
    expect(missing).toMatchObject({ status: 404, body: { message: 'Backup not found' } })
    expect((await owner.get(path(ref, '/restore-point?name=none'))).status).toBe(404)
  })

  it.each([
    ['/restore-point', {}, 'body.name'],
    ['/restore-point', { name: '' }, 'body.name'],
    ['/restore-point', { name: 'x'.repeat(21) }, 'body.name'],
    ['/undo', { name: 'x'.repeat(21) }, 'body.name'],
    ['/restore', {}, 'body.id'],
    ['/restore', { id: 'x' }, 'body.id'],
    ['/restore', { id: 1.5 }, 'body.id'],
    ['/restore', { id: 2 ** 60 }, 'body.id'],
    ['/restore-pitr', { recovery_time_target_unix: -1 }, 'body.recovery_time_target_unix'],
    ['/restore-pitr', {}, 'body.recovery_time_target_unix'],
  ])('POST %s refuses %j and names the field', async (rest, body, field) => {
    const caller = await newMember(organization, 'administrator')
    const reply = await caller.post(path(ref, rest), body)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(field)
  })

  it("is hidden from others, and another project's backup cannot be restored", async () => {
    const outsider = await tokenOf(await newUser())
    expect((await outsider.post(path(ref, '/undo'), { name: 'first' })).status).toBe(404)
    const other = await newProject(organization)
    expect((await owner.post(path(other, '/restore'), { id: await latestId(ref) })).status).toBe(404)
  })

  it('is neither made nor restored while the project is paused, and not restored unless it is complete', async () => {
    const place = await newOrganization()
    const paused = await newProject(place)
    const id = await newPoint(place.owner, paused, 'p')
    await control.update(backups).set({ status: 'FAILED' }).where(eq(backups.id, id))
    const failed = await place.owner.post(path(paused, '/restore'), { id })
    expect(failed).toMatchObject({ status: 409, body: { message: expect.stringContaining('FAILED') } })
    await control.update(backups).set({ status: 'COMPLETED' }).where(eq(backups.id, id))
    await place.owner.post(`/v1/projects/${paused}/pause`)
    await untilProject(paused, 'INACTIVE')
    expect((await place.owner.post(path(paused, '/restore-point'), { name: 'q' })).status).toBe(409)
    expect((await place.owner.post(path(paused, '/restore'), { id })).status).toBe(409)
    expect((await place.owner.get(`/v1/projects/${paused}`)).body.status).toBe('INACTIVE')
  })
})

describe('a backup of a database in use', () => {
  it('has the state of one moment and ends no session', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const client = await connectTo(ref)
    await client.query('create table a (n int); create table b (n int)')
    let writing = true
    const writer = (async () => {
      for (let n = 0; writing; n++) {
        await client.query(`begin; insert into a values (${n}); insert into b values (${n}); commit`)
      }
    })()
    const id = await newPoint(organization.owner, ref, 'busy')
    writing = false
    await writer
    expect((await client.query('select count(*)::int as n from a')).rows[0].n).toBeGreaterThan(0)
    await client.end()
    await organization.owner.post(path(ref, '/restore'), { id })
    await untilProject(ref, 'ACTIVE_HEALTHY')
    const { body } = await runSql(
      organization.owner,
      ref,
      'select (select count(*) from a) = (select count(*) from b) as same',
    )
    expect(body).toEqual([{ same: true }])
  })

  it('fails with the reason if it cannot be made, and leaves nothing', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    // A superuser damages the catalogue, so that no backup can start.
    const rename = (from: string, to: string) =>
      adminRows(ref, `set allow_system_table_mods = on; alter function ${from}(text, boolean) rename to ${to}`)
    await rename('pg_backup_start', 'gone')
    expect((await organization.owner.post(path(ref, '/restore-point'), { name: 'no' })).status).toBe(201)
    await untilFailed(ref)
    await untilPoint(organization.owner, ref, 'no', 'FAILED')
    const [row] = await control.select().from(backups).where(eq(backups.projectRef, ref))
    expect(row?.statusReason).toBe('The host failed; its log says why')
    await rename('gone', 'pg_backup_start')
    expect(await archived(ref)).toEqual([])
    expect((await organization.owner.get(`/v1/projects/${ref}`)).body.status).toBe('ACTIVE_HEALTHY')
    await newPoint(organization.owner, ref, 'no')
  })
})

describe('a point in time', () => {
  it('restores a dropped table to the second, with the present logins', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    await newPoint(owner, ref, 'base')
    const made = await runSql(owner, ref, 'create table kept (n int); insert into kept values (1); create role member')
    expect(made.status).toBe(201)
    const login = (await owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: false })).body
    const before = await nextSecond()
    await nextSecond()
    await runSql(owner, ref, `drop table kept; create table later ()`)
    expect((await owner.patch(`/v1/projects/${ref}/database/password`, { password: 'set last' })).status).toBe(200)
    const { body: list } = await owner.get(path(ref))
    expect(list).toMatchObject({ walg_enabled: true, pitr_enabled: true })
    const { earliest_physical_backup_date_unix: earliest, latest_physical_backup_date_unix: latest } =
      list.physical_backup_data
    expect(earliest).toBeLessThanOrEqual(before)
    expect(latest).toBeGreaterThan(before)
    for (const outside of [earliest - 1, latest + 3600]) {
      const refused = await owner.post(path(ref, '/restore-pitr'), { recovery_time_target_unix: outside })
      expect(refused.status).toBe(400)
      expect(refused.body.message).toContain('body.recovery_time_target_unix')
    }
    const session = ownerClient(ref, { password: 'set last' })
    await session.connect()
    const temporary = { user: `${login.role}.${ref}`, password: login.password }
    const member = ownerClient(ref, temporary)
    await member.connect()

    const restored = await owner.post(path(ref, '/restore-pitr'), { recovery_time_target_unix: before })
    expect(restored.status).toBe(201)
    await untilProject(ref, 'ACTIVE_HEALTHY')
    const [task] = await control
      .select()
      .from(projectTasks)
      .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, 'restore_moment')))
    expect(task).toMatchObject({ state: 'done', lastError: null })
    expect((await runSql(owner, ref, 'select n from kept')).body).toEqual([{ n: 1 }])
    expect((await runSql(owner, ref, `select to_regclass('later') as later`)).body).toEqual([{ later: null }])
    await expect(session.query('select 1')).rejects.toThrow()
    await expect(member.query('select 1')).rejects.toThrow()
    await expect(ownerClient(ref).connect()).rejects.toMatchObject({ code: '28P01' })
    const again = ownerClient(ref, { password: 'set last' })
    await again.connect()
    const logins = `select rolname from pg_roles where rolname ~ '^(cli|jit)_login_' or rolname = 'member'`
    expect((await again.query(logins)).rows).toEqual([{ rolname: 'member' }])
    await again.end()
    await expect(ownerClient(ref, temporary).connect()).rejects.toMatchObject({ code: '28P01' })
    expect(await actionsOf(ref)).toEqual(expect.arrayContaining(['backup.restore', 'project.restore_moment.done']))
  })

  it('is reported as failed if its consumers lose a restore that the host completes', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    await newPoint(owner, ref, 'base')
    const before = await nextSecond()
    await nextSecond()
    await runSql(owner, ref, 'create table later ()')
    const name = sql.raw(`lose_${ref}`)
    await control.execute(sql`
      create function ${name}() returns trigger language plpgsql as $$ begin raise exception 'the answer was lost'; end $$`)
    await control.execute(sql`
      create trigger ${name} before update on project_tasks for each row
      when (new.project_ref = ${sql.raw(`'${ref}'`)} and 'begin_restore' = any (new.steps_done))
      execute function ${name}()`)
    expect((await owner.post(path(ref, '/restore-pitr'), { recovery_time_target_unix: before })).status).toBe(201)
    await untilFailed(ref)
    await control.execute(sql`drop function ${name}() cascade`)
    const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
    expect(row).toMatchObject({ status: 'RESTORE_FAILED', preparation: '' })
    expect(await adminRows(ref, `select to_regclass('later') as later`)).toEqual([{ later: null }])
  })

  /** Waits for the next second, and returns it in seconds since 1970. */
  async function nextSecond(): Promise<number> {
    const second = Math.ceil((Date.now() + 1) / 1000)
    await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(second * 1000), { ...WAIT, interval: 20 })
    return second
  }
})

it('a restore of a damaged backup leaves the project in service', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  const id = await newPoint(owner, ref, 'damaged')
  await damageBackup(ref, id)
  expect((await owner.post(path(ref, '/restore'), { id })).status).toBe(201)
  await vi.waitFor(async () => expect(await openTasks(ref)).toBe(0), WAIT)
  expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('ACTIVE_HEALTHY')
  expect(await actionsOf(ref)).toContain('project.restore_backup.failed')
})

describe('a project whose server does not start', () => {
  let owner: Caller
  let ref: string
  beforeEach(async () => {
    const organization = await newOrganization()
    owner = organization.owner
    ref = await newProject(organization)
  })
  const configure = (settings: object) => owner.patch(`/v1/projects/${ref}/config/database/postgres`, settings)

  /** Runs a command in the data folder. It reads all input, because Postgres reports an input that nobody reads. */
  const runProgram = (command: string) => adminRows(ref, `copy (select) to program 'cat > /dev/null; ${command}'`)

  async function pause(): Promise<void> {
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilProject(ref, 'INACTIVE')
  }

  async function failToStart(): Promise<void> {
    expect((await owner.post(`/v1/projects/${ref}/restore`)).status).toBe(200)
    await untilFailed(ref)
    await untilProject(ref, 'RESTORE_FAILED')
  }

  it('starts with corrected settings, which are stored while it is paused', async () => {
    // All connections of the default limit: no server starts with that.
    await runProgram('echo superuser_reserved_connections = 60 >> postgresql.auto.conf')
    await pause()
    const stored = { work_mem: '7MB' }
    expect(await configure({ ...stored, restart_database: true })).toMatchObject({ status: 200, body: stored })
    await untilProject(ref, 'INACTIVE')
    await failToStart()
    expect(await configure({ work_mem: '8MB' })).toMatchObject({ status: 503 })
    expect(await configure({ max_connections: 100 })).toMatchObject({ status: 200 })
    expect((await owner.post(`/v1/projects/${ref}/restore`)).status).toBe(200)
    await untilProject(ref, 'ACTIVE_HEALTHY')
    const { body } = await runSql(owner, ref, `select current_setting('work_mem') as mem`)
    expect(body).toEqual([{ mem: '7MB' }])
  })

  it('can be restored, and a restore that is impossible changes nothing', async () => {
    const id = await newPoint(owner, ref, 'base')
    await runSql(owner, ref, 'create table later ()')
    await runProgram('rm PG_VERSION')
    await pause()
    await failToStart()
    const gone = { projectRef: ref, kind: 'scheduled', status: 'COMPLETED', insertedAt: new Date() } as const
    const [row] = await control.insert(backups).values(gone).returning()
    expect((await owner.post(path(ref, '/restore'), { id: row?.id })).status).toBe(201)
    await vi.waitFor(async () => expect(await openTasks(ref)).toBe(0), WAIT)
    await untilProject(ref, 'RESTORE_FAILED')
    expect((await owner.post(path(ref, '/restore'), { id })).status).toBe(201)
    await untilProject(ref, 'ACTIVE_HEALTHY')
    const { body } = await runSql(owner, ref, `select to_regclass('later') as later`)
    expect(body).toEqual([{ later: null }])
  })
})

describe('a task whose consumer died', () => {
  let organization: TestOrganization
  let ref: string
  beforeAll(async () => {
    organization = await newOrganization()
    ref = await newProject(organization)
    await runSql(organization.owner, ref, 'create table t (n int); insert into t values (1)')
  })

  /** Leaves a task as a consumer that died some time ago after so many steps: their effects exist, perhaps more. */
  const abandon = (kind: 'backup' | 'restore_backup', stepsDone: string[]) =>
    control
      .update(projectTasks)
      .set({ state: 'running', claim: crypto.randomUUID(), leaseUntil: new Date(0), finishedAt: null, stepsDone })
      .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, kind)))

  it.each([[[]], [['copy_database']]])('makes the backup after %j', async (stepsDone: string[]) => {
    const name = `after ${stepsDone.length}`
    const id = await newPoint(organization.owner, ref, name)
    await control.update(backups).set({ status: 'PENDING', completedAt: null }).where(eq(backups.id, id))
    await abandon('backup', stepsDone)
    await tick()
    await untilPoint(organization.owner, ref, name, 'AVAILABLE')
    expect(await archived(ref)).toContain(id)
    await control.delete(projectTasks).where(eq(projectTasks.projectRef, ref))
  })

  const STEPS = ['find_backup', 'replace_database', 'apply_settings', 'check_health']
  it.each((isExtended ? [0, 1, 2, 3, 4] : [0, 2, 4]).map((count) => [STEPS.slice(0, count)] as const))(
    'restores the backup after %j',
    async (stepsDone) => {
      await control.delete(projectTasks).where(eq(projectTasks.projectRef, ref))
      const id = await latestId(ref)
      expect((await organization.owner.post(path(ref, '/restore'), { id })).status).toBe(201)
      await untilProject(ref, 'ACTIVE_HEALTHY')
      await control.update(projects).set({ status: 'RESTORING' }).where(eq(projects.ref, ref))
      await abandon('restore_backup', [...stepsDone])
      await tick()
      await untilProject(ref, 'ACTIVE_HEALTHY')
      expect((await runSql(organization.owner, ref, 'select n from t')).body).toEqual([{ n: 1 }])
    },
  )
})

it('a backup that can be restored is reported, however many were removed since', async () => {
  const organization = await newOrganization()
  const ref = await newProject(organization)
  const row = (status: 'COMPLETED' | 'REMOVED', days: number) => ({
    ...{ projectRef: ref, kind: 'scheduled' as const, status },
    insertedAt: new Date(Date.now() - days * 86_400_000),
  })
  await control.insert(backups).values([row('COMPLETED', 3), ...Array.from({ length: 150 }, () => row('REMOVED', 1))])
  const listing = (await organization.owner.get(path(ref))).body
  expect(listing.backups).toHaveLength(100)
  expect(listing.backups.at(-1)).toMatchObject({ status: 'COMPLETED' })
  expect(listing.physical_backup_data).toHaveProperty('latest_physical_backup_date_unix')
})

it('a backup that was removed more than 30 days ago is deleted, however many there are, and nothing else', async () => {
  const ref = await insertProject(await newOrganization())
  const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000)
  const row = (status: 'COMPLETED' | 'FAILED' | 'REMOVED', removedAt: Date | null) => ({
    ...{ projectRef: ref, kind: 'scheduled' as const, insertedAt: daysAgo(60), status, removedAt },
  })
  const old = Array.from({ length: 2_500 }, () => row('REMOVED', daysAgo(31)))
  await control.insert(backups).values(old)
  await control.insert(backups).values([row('REMOVED', daysAgo(29)), row('FAILED', null), row('COMPLETED', null)])
  await vi.waitFor(async () => {
    await tick()
    const left = await control.select().from(backups).where(eq(backups.projectRef, ref)).orderBy(backups.id)
    expect(left.map(({ status }) => status)).toEqual(['REMOVED', 'FAILED', 'COMPLETED'])
  }, WAIT)
})

/** Removes bytes as the sweep does, a quarter of an hour after the object was removed. */
async function removeBytes(ref: string, size: number): Promise<void> {
  const Prefix = `projects/${ref}/storage/`
  const { Contents = [] } = await bytes.send(new ListObjectsV2Command({ Bucket, Prefix }))
  const Key = Contents.find(({ Size }) => Size === size)?.Key
  await bytes.send(new DeleteObjectCommand({ Bucket, Key }))
}

describe('the storage objects of a project', () => {
  it('are restored with their bytes, unless somebody removed them', async () => {
    const storage = await newStorage()
    const bucket = await newBucket(storage)
    const files = clientOf(storage, storage.keys.service).from(bucket)
    await files.upload('kept.txt', 'kept')
    await files.upload('removed.txt', 'x'.repeat(1_000_000))
    await newPoint(storage.organization.owner, storage.ref, 'with-file')
    await files.upload('later.txt', 'later')
    await files.remove(['removed.txt'])
    await removeBytes(storage.ref, 1_000_000)
    await storage.organization.owner.post(path(storage.ref, '/undo'), { name: 'with-file' })
    await untilProject(storage.ref, 'ACTIVE_HEALTHY')
    await vi.waitFor(async () => {
      const { data } = await files.list()
      expect(data?.map(({ name }) => name)).toEqual(['kept.txt', 'removed.txt'])
    }, WAIT)
    expect(await (await files.download('kept.txt')).data?.text()).toBe('kept')
    expect((await files.download('removed.txt')).error).toMatchObject({ code: 'NoSuchKey' })
  })
})

describe('the schedule', () => {
  const DAY_MS = 86_400_000
  const scheduled = async (ref: string) =>
    control
      .select()
      .from(backups)
      .where(and(eq(backups.projectRef, ref), eq(backups.kind, 'scheduled')))
      .orderBy(backups.id)
  const dueAt = async (ref: string) => {
    const [row] = await control
      .select()
      .from(projectSettings)
      .where(and(eq(projectSettings.projectRef, ref), eq(projectSettings.area, 'backup_schedule')))
    return row?.value.due_at
  }
  /** Runs the check of all projects as if the last one were an hour ago. */
  const checkSchedule = async () => {
    await control.delete(heartbeats).where(inArray(heartbeats.name, ['old_backups', 'backup_schedules']))
    await tick()
  }
  const setPlan = ({ slug }: TestOrganization, plan: typeof organizations.$inferInsert.plan) =>
    control.update(organizations).set({ plan }).where(eq(organizations.slug, slug))

  extended('makes one backup a day, however many processes check the time', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    const yesterday = new Date(Date.now() - DAY_MS)
    const time = new Date(yesterday.getTime() + 3_600_000).toISOString().slice(11, 16)
    const set = await owner.at(yesterday).patch(path(ref, '/schedule'), { schedule_for: time })
    expect(set.status).toBe(200)
    expect(set.body).toEqual({ schedule_for: time, updated_at: yesterday.toISOString() })
    expect((await owner.get(path(ref, '/schedule'))).body).toEqual(set.body)
    await Promise.all([tick(), tick(), tick()])
    expect(await scheduled(ref)).toMatchObject([{ kind: 'scheduled' }])
    await vi.waitFor(async () => expect(await scheduled(ref)).toMatchObject([{ status: 'COMPLETED' }]), WAIT)
    await tick()
    expect(await scheduled(ref)).toHaveLength(1)
    const next = Date.parse(String(await dueAt(ref)))
    expect(next).toBeGreaterThan(Date.now())
    expect(next).toBeLessThanOrEqual(Date.now() + DAY_MS)
    expect(await eventsOf(ref)).toContain('v1.project.backup.started')
    expect((await owner.delete(path(ref, '/schedule'))).status).toBe(200)
    expect((await owner.get(path(ref, '/schedule'))).status).toBe(404)
    expect((await owner.delete(path(ref, '/schedule'))).status).toBe(200)
    expect(await actionsOf(ref)).toEqual(expect.arrayContaining(['backup_schedule.update', 'backup_schedule.delete']))
  })

  it.each(['24:00', '4:30', '04:60', '04:30Z', '', 430])('refuses %j', async (time) => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    const reply = await organization.owner.patch(path(ref, '/schedule'), { schedule_for: time })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.schedule_for') } })
    const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
    const { body: schedule } = await organization.owner.get(path(ref, '/schedule'))
    expect(schedule.schedule_for).toBe(row?.createdAt.toISOString().slice(11, 19))
  })

  it('depends on the plan, from the day after the project was created to its end', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    const branch = await newBranch(owner, ref)
    const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
    const createdAt = row?.createdAt.toISOString() ?? ''
    const schedule = { schedule_for: createdAt.slice(11, 19), updated_at: createdAt }
    expect(await owner.get(path(ref, '/schedule'))).toMatchObject({ status: 200, body: schedule })
    await checkSchedule()
    expect(Date.parse(String(await dueAt(ref)))).toBe(Number(row?.createdAt) + DAY_MS)
    expect(await owner.get(path(ref, '/schedule'))).toMatchObject({ status: 200, body: schedule })
    expect((await owner.get(path(branch.project_ref, '/schedule'))).status).toBe(404)
    expect(await dueAt(branch.project_ref)).toBeUndefined()
    expect((await owner.delete(path(ref, '/schedule'))).status).toBe(200)
    await checkSchedule()
    expect(await dueAt(ref)).toBeNull()
    expect((await owner.get(path(ref, '/schedule'))).status).toBe(404)
  })

  it('of a later plan is not turned off by a deletion on a plan that has none', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    await setPlan(organization, 'free')
    expect((await organization.owner.delete(path(ref, '/schedule'))).status).toBe(200)
    expect((await organization.owner.get(path(ref, '/schedule'))).status).toBe(404)
    await setPlan(organization, 'pro')
    expect((await organization.owner.get(path(ref, '/schedule'))).status).toBe(200)
  })

  it.each([
    ['RESTARTING', 5 * 60_000],
    ['UPGRADING', 5 * 60_000],
    ['INACTIVE', DAY_MS],
  ] as const)('is tried again if the project is %s, within %i ms', async (status, ms) => {
    const organization = await newOrganization()
    const ref = await insertProject(organization, { status })
    const yesterday = new Date(Date.now() - DAY_MS)
    // A time of day that has just passed: the next one is a day away.
    const time = new Date(Date.now() - 60_000).toISOString().slice(11, 19)
    await organization.owner.at(yesterday).patch(path(ref, '/schedule'), { schedule_for: time })
    await expect
      .poll(async () => {
        await checkSchedule()
        return Date.parse(String(await dueAt(ref))) - Date.now()
      })
      .toSatisfy((left: number) => left > ms / 2 && left <= ms)
    expect(await scheduled(ref)).toEqual([])
    // Without a database, the backup that is due in five minutes would fail during later tests.
    await control.update(projects).set({ removedAt: new Date() }).where(eq(projects.ref, ref))
  })

  it('is not stored for a project that is removed meanwhile', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    const { asked } = await control.transaction(async (tx) => {
      await tx.update(projects).set({ status: 'REMOVED', removedAt: new Date() }).where(eq(projects.ref, ref))
      return untilBlocked(tx, () => organization.owner.patch(path(ref, '/schedule'), { schedule_for: '04:30' }))
    })
    expect((await asked).status).toBe(404)
    expect(await dueAt(ref)).toBeUndefined()
  })

  it('does not cover the free plan, even if there was a backup before', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await insertProject(organization)
    const yesterday = new Date(Date.now() - DAY_MS)
    await owner.at(yesterday).patch(path(ref, '/schedule'), { schedule_for: '04:30' })
    await setPlan(organization, 'free')
    const other = await insertProject(organization)
    expect((await owner.get(path(ref, '/schedule'))).status).toBe(404)
    expect(await owner.patch(path(ref, '/schedule'), { schedule_for: '05:30' })).toMatchObject({
      status: 402,
      body: { message: expect.stringContaining('requires the Pro, Team, or Enterprise organization plan') },
    })
    await checkSchedule()
    expect(await scheduled(ref)).toEqual([])
    expect(await dueAt(other)).toBeUndefined()
    await setPlan(organization, 'pro')
    expect((await owner.get(path(ref, '/schedule'))).body).toMatchObject({ schedule_for: '04:30' })
  })

  it.each([
    ['free', 7, false],
    ['pro', 7, true],
    ['team', 14, true],
    ['enterprise', 30, true],
  ] as const)(
    'keeps backups on the plan %s for %i days, and the latest one if others follow',
    async (plan, days, isDaily) => {
      const organization = await newOrganization()
      await setPlan(organization, plan)
      const [ref, resting] = [await insertProject(organization), await insertProject(organization)]
      const row = (projectRef: string, age: number) => ({
        ...{ projectRef, kind: 'scheduled' as const, status: 'COMPLETED' as const },
        insertedAt: new Date(Date.now() - age),
      })
      const late = days * DAY_MS + 60_000
      await control
        .insert(backups)
        .values([row(ref, late), row(ref, days * DAY_MS - 600_000), row(resting, late + 1), row(resting, late)])
      await checkSchedule()
      expect((await scheduled(ref)).map(({ status }) => status)).toEqual(['REMOVED', 'COMPLETED'])
      expect((await scheduled(resting)).map(({ status }) => status)).toEqual([
        'REMOVED',
        isDaily ? 'COMPLETED' : 'REMOVED',
      ])
      const { body } = await organization.owner.get(`/v1/organizations/${organization.slug}/entitlements`)
      const config = (key: string) =>
        body.entitlements.find((each: { feature: { key: string } }) => each.feature.key === key).config
      expect(config('backup.retention_days').value).toBe(isDaily ? days : 0)
      expect(config('backup.schedule')).toEqual({ enabled: isDaily })
    },
  )

  it('keeps those of the last days, and removes files without a backup', async () => {
    const organization = await newOrganization()
    await setPlan(organization, 'pro')
    const ref = await newProject(organization)
    await control.insert(backups).values(
      Array.from({ length: 7 }, (_, n) => ({
        projectRef: ref,
        kind: 'scheduled' as const,
        status: 'COMPLETED' as const,
        insertedAt: new Date(Date.now() - (7.5 - n) * DAY_MS),
      })),
    )
    const [oldest, second] = await scheduled(ref)
    const kept = await newPoint(organization.owner, ref, 'kept')
    for (const id of [oldest?.id ?? 0, second?.id ?? 0, 999_999_999]) await makeBackup(ref, id)
    await organization.owner
      .at(new Date(Date.now() - DAY_MS))
      .patch(path(ref, '/schedule'), { schedule_for: new Date(Date.now() - 60_000).toISOString().slice(11, 19) })
    await tick()
    await vi.waitFor(async () => expect((await scheduled(ref)).at(-1)?.status).toBe('COMPLETED'), WAIT)
    await checkSchedule()
    const all = await scheduled(ref)
    expect(all.map(({ status }) => status)).toEqual(['REMOVED', ...Array(7).fill('COMPLETED')])
    const foreign = newRef()
    await askHost('PUT', `/instances/${foreign}`, { password: PASSWORD })
    await makeBackup(foreign, 1)
    await vi.waitFor(async () => {
      await checkSchedule()
      // The last backup is unknown: the control database may have been restored to a time before it.
      expect(await archived(ref)).toEqual([second?.id, kept, all.at(-1)?.id, 999_999_999])
    }, WAIT)
    expect(await archived(foreign)).toEqual([1])
    await askHost('DELETE', `/instances/${foreign}`)
    expect(await keysOf(`backups/${foreign}/`)).toEqual([])
    expect((await organization.owner.post(path(ref, '/restore'), { id: oldest?.id })).status).toBe(409)
    // The files of this backup are gone: the project stays as it is.
    expect((await organization.owner.post(path(ref, '/restore'), { id: all[2]?.id })).status).toBe(201)
    await vi.waitFor(async () => expect(await openTasks(ref)).toBe(0), WAIT)
    expect((await organization.owner.get(`/v1/projects/${ref}`)).body.status).toBe('ACTIVE_HEALTHY')
    const gone = { status: 'REMOVED', removedAt: expect.any(Date) }
    expect(await scheduled(ref)).toMatchObject([gone, { removedAt: null }, gone, ...Array(5).fill({ removedAt: null })])
    expect((await runSql(organization.owner, ref, 'select 1')).status).toBe(201)
  })

  it('is not kept back by the backup of a move that failed', async () => {
    const ref = await newProject(await newOrganization())
    await makeBackup(ref, 0)
    const [task] = await control
      .insert(projectTasks)
      .values({ projectRef: ref, kind: 'move', dueAt: new Date(Date.now() + DAY_MS) })
      .returning()
    await checkSchedule()
    expect(await archived(ref)).toEqual([0])
    const state = { state: 'failed', finishedAt: new Date() } as const
    await control
      .update(projectTasks)
      .set(state)
      .where(eq(projectTasks.id, task?.id ?? ''))
    await vi.waitFor(async () => {
      await checkSchedule()
      expect(await archived(ref)).toEqual([])
    }, WAIT)
    expect(await keysOf(`backups/${ref}/`)).toEqual([])
  })

  it('waits a while for other work on the project', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    const yesterday = new Date(Date.now() - DAY_MS)
    const time = new Date(Date.now() - 3_600_000).toISOString().slice(11, 16)
    await organization.owner.at(yesterday).patch(path(ref, '/schedule'), { schedule_for: time })
    const never = new Date(Date.now() + DAY_MS)
    await control.insert(projectTasks).values({ projectRef: ref, kind: 'branch_merge', dueAt: never })
    await tick()
    expect(await scheduled(ref)).toEqual([])
    const again = Date.parse(String(await dueAt(ref)))
    expect(again).toBeGreaterThan(Date.now())
    expect(again).toBeLessThan(Date.now() + 3_600_000)
    expect((await organization.owner.post(path(ref, '/restore-point'), { name: 'p' })).status).toBe(409)
    expect(await control.select().from(backups).where(eq(backups.projectRef, ref))).toEqual([])
  })

  it('skips a project that sleeps', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization, { status: 'INACTIVE' })
    const before = new Date(Date.now() - 2 * DAY_MS)
    await organization.owner.at(before).patch(path(ref, '/schedule'), { schedule_for: '04:30' })
    await tick()
    expect(await scheduled(ref)).toEqual([])
    expect(Date.parse(String(await dueAt(ref)))).toBeGreaterThan(Date.now())
  })
})

describe('npm run admin -- backups drill', () => {
  beforeAll(() => {
    const { url, key } = inject('host')
    vi.stubEnv('HOST_URL', url)
    vi.stubEnv('HOST_KEY', key)
  })
  afterAll(() => void vi.unstubAllEnvs())
  const drill = (ref: string) => readCommand(['backups', 'drill', '--project', ref])(control)

  it('restores and compares the newest backup, and fails on a damaged one', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const none = { text: `${ref}  -  no backup\n0 restored, 0 failed, 1 without a backup`, exitCode: 0 }
    expect(await drill(ref)).toEqual(none)
    const id = await newPoint(organization.owner, ref, 'drilled')
    await runSql(organization.owner, ref, 'create table drilled as select generate_series(1, 100) as n')
    const { text, exitCode } = await drill(ref)
    expect(text).toMatch(
      new RegExp(`^${ref}  ok  backup ${id}, \\d+ tables, \\d+ rows, \\d+ indexes, [\\d.]+ s\n1 restored, 0 failed`),
    )
    expect(exitCode).toBe(0)

    await damageBackup(ref, id)
    const failed = await drill(ref)
    expect(failed.text).toMatch(
      new RegExp(`^${ref}  FAILED  backups/${ref}/base/${id}.tar was changed.*\n0 restored, 1 failed`),
    )
    expect(failed.exitCode).toBe(1)
    expect((await runSql(organization.owner, ref, 'select count(*)::int as n from drilled')).body).toEqual([{ n: 100 }])
    await expect(drill(newRef())).rejects.toThrow('no project has the ref')
  })
})

describe('the supabase CLI', () => {
  extended('runs backups list, and shows why backups restore is refused', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    await newPoint(organization.owner, ref, 'one')
    const cli = cliOf(organization.owner)
    expect(await cli('backups', 'list', `--remote=${ref}`)).toMatch(/COMPLETED/)
    // The time is long before the first backup.
    await expect(cli('backups', 'restore', '-t', '1707407047', `--remote=${ref}`, '--yes')).rejects.toThrow(
      /recovery_time_target_unix/,
    )
  })
})

describe('the removal of a database', () => {
  it('removes its backups, also one under way', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    await newPoint(organization.owner, ref, 'one')
    await organization.owner.patch(path(ref, '/schedule'), { schedule_for: '04:30' })
    expect((await organization.owner.post(path(ref, '/restore-point'), { name: 'two' })).status).toBe(201)
    expect((await organization.owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
    await untilGone(organization.owner, ref)
    expect(await keysOf(`backups/${ref}/`)).toEqual([])
    expect(await control.select().from(backups).where(eq(backups.projectRef, ref))).toEqual([])
    expect(await control.select().from(projectSettings).where(eq(projectSettings.projectRef, ref))).toEqual([])
  })

  it("removes a branch's backups when the branch is reset", async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const branch = await newBranch(owner, await newProject(organization))
    await newPoint(owner, branch.project_ref, 'one')
    expect((await owner.post(`/v1/branches/${branch.project_ref}/reset`, {})).status).toBe(201)
    await untilPoint(owner, branch.project_ref, 'one', 'REMOVED')
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await keysOf(`backups/${branch.project_ref}/`)).toEqual([])
  })
})

extended('is found due without reading the settings of 100,000 projects', async () => {
  const client = await adminClient('control', { database: new URL(inject('controlUrl')).pathname.slice(1) })
  await client.query(`begin; set local search_path = public; set local session_replication_role = replica;
    insert into project_settings (project_ref, area, value, updated_at)
      select 'none-' || n, area, '{"due_at": "2100-01-01T00:00:00.000Z"}', now()
        from generate_series(1, 100000) as n, unnest(array['disk', 'backup_schedule']) as area;
    insert into backups (project_ref, kind, status, inserted_at) select 'none-' || n % 1000, 'scheduled', 'COMPLETED', now()
      from generate_series(1, 100000) as n;
    analyze project_settings; analyze backups`)
  for (const query of [
    `select value from project_settings where area = 'backup_schedule' and value ->> 'due_at' <= '2026-01-01' order by value ->> 'due_at' limit 100`,
    `select * from backups where project_ref = 'none-7' order by inserted_at desc, id desc limit 100`,
  ]) {
    const { rows } = await client.query(`explain ${query}`)
    expect(JSON.stringify(rows)).not.toContain('Seq Scan')
  }
  await client.query('rollback')
  await client.end()
})

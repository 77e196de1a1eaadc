import { eq, sql } from 'drizzle-orm'
import type pg from 'pg'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { readOnlyCommands } from '../../../dev/admin/read-only.ts'
import { projectSettings, projects } from '../../../src/model/tables/index.ts'
import { adminClient, adminRows } from '../../instances.ts'
import { type Caller, control, newOrganization, type TestOrganization, tick, workerLogs } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, runSql } from '../../support/projects.ts'
import { clientOf, newBucket, newStorage } from '../../support/storage.ts'
import { WAIT_MS } from '../../support/wait.ts'

let organization: TestOrganization
let caller: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  caller = () => organization.owner
})

const GIGABYTE = 1024 ** 3
const OPEN = { enabled: false, override_enabled: false, override_active_until: '' }
const CLOSED = { ...OPEN, enabled: true }

/** Runs `npm run admin -- readonly on|off`, without a process for each. */
const command = (verb: 'on' | 'off', ref: string) => readOnlyCommands[`readonly ${verb}`]?.run(control, [ref], {})

const status = async (ref: string) => (await caller().get(`/v1/projects/${ref}/readonly`)).body
const write = async (ref: string) => (await runSql(caller(), ref, 'insert into public.t values (1)')).status
const insert = (ref: string, before = '') => runSql(caller(), ref, `${before} insert into public.t values (1)`)

async function newTable(): Promise<string> {
  const ref = await newProject(organization)
  await runSql(caller(), ref, 'create table public.t (n int)')
  return ref
}

async function connect(ref: string): Promise<pg.Client> {
  const client = ownerClient(ref)
  await client.connect()
  return client
}

const fillers = new Map<string, number>()

/**
 * Makes the instance use this much disk, by a file that the server itself allocates. The file gets its new size at
 * once: a round of another test file may measure at any moment.
 */
async function inflate(ref: string, bytes: number): Promise<void> {
  const filler = Math.max(0, bytes - (await measure(ref)) + (fillers.get(ref) ?? 0))
  const resize = filler > 0 ? `fallocate -l ${filler} filler && truncate -s ${filler} filler` : 'rm -f filler'
  await adminRows(ref, `copy (select) to program 'cat > /dev/null; ${resize}'`)
  fillers.set(ref, filler)
  // The job would use a measurement that is up to half a minute old.
  await measure(ref)
}

async function measure(ref: string): Promise<number> {
  const { url, key } = inject('host')
  const headers = { authorization: `Bearer ${key}` }
  const response = await fetch(`${url}/host/v1/instances/${ref}?size=now`, { headers })
  return ((await response.json()) as { size_bytes: number }).size_bytes
}

const REFUSED = { status: 400, body: { code: '25006', message: expect.stringContaining('read-only transaction') } }
/** A round of another test file may still be ending the sessions, and the statements that run in them fail with 503. */
const expectRefusal = (ref: string, message?: string) =>
  expect.poll(() => insert(ref), { ...(message && { message }) }).toMatchObject(REFUSED)

describe('read-only mode by the operator', () => {
  it('ends open sessions, refuses writes in later ones, and still allows reads', async () => {
    const ref = await newTable()
    expect(await status(ref)).toEqual(OPEN)
    const before = await connect(ref)
    expect(await command('on', ref)).toBe(`${ref} becomes read-only within a minute`)
    await tick()
    expect(await status(ref)).toEqual(CLOSED)
    await expect(before.query('insert into public.t values (1)')).rejects.toThrow()
    await expectRefusal(ref)
    expect((await runSql(caller(), ref, 'select count(*)::int as n from public.t')).body).toEqual([{ n: 0 }])
    const after = await connect(ref)
    await expect(after.query('insert into public.t values (1)')).rejects.toMatchObject({ code: '25006' })
    await expect(after.query('create table public.u ()')).rejects.toMatchObject({ code: '25006' })

    expect(await command('off', ref)).toContain('becomes writable within a minute')
    await tick()
    expect(await status(ref)).toEqual(OPEN)
    expect(await write(ref)).toBe(201)
    await expect(after.query('select 1'), 'it would have stayed read-only').rejects.toThrow()
  })

  it('lets a session turn it off to free space, and applies to the next one', async () => {
    const ref = await newTable()
    await command('on', ref)
    await tick()
    await expectRefusal(ref)
    expect((await insert(ref, 'set transaction read write;')).status).toBe(201)
    await expectRefusal(ref)
  })

  extended('is restored within a minute if the owner has switched it off permanently', async () => {
    const ref = await newTable()
    await command('on', ref)
    await tick()
    for (const undo of [
      `alter database postgres reset default_transaction_read_only`,
      `alter role postgres set default_transaction_read_only = off`,
      `alter role postgres in database postgres set default_transaction_read_only = off`,
    ]) {
      expect((await runSql(caller(), ref, `set transaction read write; set role none; ${undo}`)).status, undo).toBe(201)
      expect(await write(ref), undo).toBe(201)
      await tick()
      await expectRefusal(ref, undo)
    }
  })

  it("leaves the owner's own settings unchanged", async () => {
    const ref = await newTable()
    await runSql(caller(), ref, `alter database postgres set default_transaction_read_only = on`)
    await tick()
    await expectRefusal(ref)
    expect(await status(ref)).toEqual(OPEN)
  })

  it('applies to the storage server, also on open connections', async () => {
    const storage = await newStorage(organization)
    const { ref } = storage
    const bucket = await newBucket(storage)
    const objects = clientOf(storage, storage.keys.service).from(bucket)
    const upload = (name: string) => objects.upload(name, 'text')
    expect((await upload('before')).error).toBeNull()
    await command('on', ref)
    await tick()
    expect(await upload('during')).toMatchObject({ error: { statusCode: '503' } })
    expect(await (await objects.download('before')).data?.text()).toBe('text')
    await command('off', ref)
    await tick()
    // A session that was just ended may fail the request that uses it.
    await expect.poll(async () => (await upload('after')).error).toBeNull()
  })

  it('reports an unknown project', async () => {
    await expect(command('on', 'abcdefghijklmnopqrst')).rejects.toThrow('no project has the ref "abcdefghijklmnopqrst"')
  })
})

describe('POST /v1/projects/{ref}/readonly/temporary-disable', () => {
  it('allows writes at once for 15 minutes, and not a minute longer', async () => {
    const ref = await newTable()
    await command('on', ref)
    await tick()
    const reply = await caller().post(`/v1/projects/${ref}/readonly/temporary-disable`)
    expect(reply).toMatchObject({ status: 201, body: '' })
    expect(await write(ref)).toBe(201)
    const { override_active_until: until, ...rest } = await status(ref)
    expect(rest).toEqual({ enabled: true, override_enabled: true })
    expect(Math.abs(Date.parse(until) - Date.now() - 15 * 60_000)).toBeLessThan(60_000)
    expect(
      (
        await caller()
          .at(new Date(Date.parse(until) + 1))
          .get(`/v1/projects/${ref}/readonly`)
      ).body,
    ).toEqual(CLOSED)
    await tick()
    expect(await write(ref), 'still within the time').toBe(201)
    const past = JSON.stringify({ overrideUntil: new Date(Date.now() - 1).toISOString() })
    await control
      .update(projectSettings)
      .set({ value: sql`${projectSettings.value} || ${past}::jsonb` })
      .where(eq(projectSettings.projectRef, ref))
    await tick()
    await expectRefusal(ref)
  })

  it('also applies to a project that is not read-only yet', async () => {
    const ref = await newTable()
    expect((await caller().post(`/v1/projects/${ref}/readonly/temporary-disable`)).status).toBe(201)
    expect(await status(ref)).toMatchObject({ enabled: false, override_enabled: true })
    await command('on', ref)
    await tick()
    expect(await write(ref)).toBe(201)
  })

  it('is not undone by a round that was closing the database meanwhile', async () => {
    const ref = await newTable()
    await command('on', ref)
    const admin = await adminClient(ref)
    await admin.query(`begin; alter database postgres set work_mem = '5MB'`)
    const round = tick()
    const applied = async () =>
      (await control.select().from(projectSettings).where(eq(projectSettings.projectRef, ref)))[0]?.value.applied
    await expect.poll(applied).toBe(true)
    const free = async () =>
      (await control.execute(sql`select ref from projects where ref = ${ref} for no key update skip locked`)).rows
    await expect.poll(free, { message: 'the database is told without the lock' }).toEqual([])
    const disabled = caller().post(`/v1/projects/${ref}/readonly/temporary-disable`)
    await admin.query('rollback')
    await admin.end()
    expect((await disabled).status).toBe(201)
    await round
    expect(await write(ref)).toBe(201)
  })

  it('answers 503 if the database is gone, and a sweep continues with the others', async () => {
    const [ref, other] = await Promise.all([newTable(), newTable()])
    await command('on', ref)
    await tick()
    const admin = await adminClient(ref, { database: 'template1' })
    await admin.query('drop database postgres with (force)')
    await admin.end()
    await command('on', other)
    await tick()
    await expectRefusal(other)
    expect(await caller().post(`/v1/projects/${ref}/readonly/temporary-disable`)).toMatchObject({ status: 503 })
    expect(await status(ref)).toEqual(CLOSED)
    await command('off', ref)
  })
})

describe('read-only mode by size', () => {
  it('starts at 95 % of the disk and ends below 90 %', async () => {
    const ref = await newTable()
    await caller().post(`/v1/projects/${ref}/config/disk`, { attributes: { type: 'gp3', iops: 3000, size_gb: 1 } })
    const states: boolean[] = []
    for (const share of [0.9, 0.96, 0.92, 0.85, 0.92]) {
      await inflate(ref, Math.round(share * GIGABYTE))
      await tick()
      states.push((await status(ref)).enabled)
      expect((await write(ref)) === 400).toBe(states.at(-1))
    }
    expect(states).toEqual([false, true, true, false, false])
    await inflate(ref, 0)
  })

  it('ends with a larger disk, and a disk cannot become smaller than its contents', async () => {
    const ref = await newTable()
    const resize = (size_gb: number) =>
      caller().post(`/v1/projects/${ref}/config/disk`, { attributes: { type: 'gp3', iops: 3000, size_gb } })
    await resize(2)
    await inflate(ref, 2 * GIGABYTE)
    await tick()
    await expectRefusal(ref)
    const refused = { status: 400, body: { message: expect.stringContaining('body.attributes.size_gb') } }
    expect(await resize(1)).toMatchObject(refused)
    expect((await resize(3)).status).toBe(201)
    await tick()
    expect(await write(ref)).toBe(201)
    await inflate(ref, 0)
  })

  extended('does not begin with a branch, whose disk cannot be smaller than the data that it gets', async () => {
    const ref = await newTable()
    await caller().post(`/v1/projects/${ref}/config/disk`, { attributes: { type: 'gp3', iops: 3000, size_gb: 16 } })
    await inflate(ref, 8 * GIGABYTE + 2 ** 20)
    const attributes = { name: 'small', with_data: true, desired_disk_size_gb: 8 }
    const reply = await caller().post(`/v2/projects/${ref}/branches`, { data: { type: 'branch', attributes } })
    await inflate(ref, 0)
    const message = expect.stringContaining('must be at least 9')
    const issues = [{ message, meta: { field: 'body.data.attributes.desired_disk_size_gb' } }]
    expect(reply).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed', issues } } })
    expect((await caller().get(`/v1/projects/${ref}/branches`)).body).toEqual([])
  })

  extended('starts for other projects if that of one project cannot be recorded', async () => {
    const [broken, ref] = await Promise.all([newTable(), newTable()])
    for (const one of [broken, ref]) {
      await caller().post(`/v1/projects/${one}/config/disk`, { attributes: { type: 'gp3', iops: 3000, size_gb: 1 } })
      await inflate(one, GIGABYTE)
    }
    const refusal = sql.raw(`not (project_ref = '${broken}' and area = 'readonly')`)
    await control.execute(sql`alter table project_settings add constraint refused check (${refusal}) not valid`)
    await tick()
    await control.execute(sql`alter table project_settings drop constraint refused`)
    expect([await status(ref), await status(broken)]).toEqual([CLOSED, OPEN])
    for (const one of [broken, ref]) await inflate(one, 0)
  })

  extended("does not undo the operator's setting", async () => {
    const ref = await newTable()
    await command('on', ref)
    await tick()
    await tick()
    expect(await status(ref)).toEqual(CLOSED)
  })
})

describe('a restore', () => {
  const backups = (ref: string) => `/v1/projects/${ref}/database/backups`
  const WAIT = { timeout: WAIT_MS, interval: 250 }

  async function newPoint(ref: string, name: string): Promise<void> {
    expect((await caller().post(`${backups(ref)}/restore-point`, { name })).status).toBe(201)
    const point = async () => (await caller().get(`${backups(ref)}/restore-point?name=${name}`)).body.status
    await vi.waitFor(async () => expect(await point()).toBe('AVAILABLE'), { ...WAIT, interval: 1_000 })
  }

  async function restore(ref: string, path: string, body: object): Promise<void> {
    expect((await caller().post(`${backups(ref)}/${path}`, body)).status).toBe(201)
    const current = () => control.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))
    await vi.waitFor(async () => expect(await current()).toEqual([{ status: 'ACTIVE_HEALTHY' }]), WAIT)
  }

  it('keeps the present mode, whichever the database had then', { timeout: 120_000 }, async () => {
    const ref = await newTable()
    await newPoint(ref, 'writable')
    await command('on', ref)
    await tick()
    await expectRefusal(ref)
    const closedAt = Math.ceil(Date.now() / 1_000)
    await vi.waitFor(() => expect(Date.now()).toBeGreaterThan(closedAt * 1_000), WAIT)
    await restore(ref, 'undo', { name: 'writable' })
    await expectRefusal(ref)

    await command('off', ref)
    await tick()
    expect(await write(ref)).toBe(201)
    await restore(ref, 'restore-pitr', { recovery_time_target_unix: closedAt })
    expect(await status(ref)).toEqual(OPEN)
    expect(await write(ref)).toBe(201)
  })
})

it('the settings of read-only mode are found without reading those of 100,000 projects', async () => {
  const client = await adminClient('control', { database: 'pilothouse' })
  await client.query(`begin; set local search_path = public; set local session_replication_role = replica;
    insert into project_settings (project_ref, area, value, updated_at)
      select 'none-' || n, area, '{}', now() from generate_series(1, 100000) as n, unnest(array['disk', 'postgres']) as area;
    analyze project_settings`)
  for (const query of [
    `select value from project_settings where area = 'readonly'`,
    `select value from project_settings where project_ref = 'none-7' and area = 'postgres'`,
  ]) {
    const { rows } = await client.query(`explain ${query}`)
    expect(JSON.stringify(rows)).not.toContain('Seq Scan')
  }
  await client.query('rollback')
  await client.end()
})

it('the duty for read-only mode succeeds although projects have no database or a broken one', async () => {
  await tick()
  expect(await workerLogs('"duty":"read_only"')).toEqual([])
})

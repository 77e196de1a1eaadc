import { and, desc, eq, sql } from 'drizzle-orm'
import { describe, expect, inject, it, vi } from 'vitest'
import { backups, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { adminRows, askHost, onHost } from '../../instances.ts'
import { admin } from '../../support/admin.ts'
import { addMember, as, control, newOrganization, newUser, tick, tokenOf } from '../../support/api.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

/** A long timeout: an instance is copied while other tests make their own. */
vi.setConfig({ testTimeout: 120_000 })
const WAIT = { timeout: WAIT_MS, interval: 1_000 }

async function newOldProject() {
  const organization = await newOrganization()
  const ref = await newProject(organization, { postgres_engine: '17' })
  const { owner } = organization
  const path = `/v1/projects/${ref}/upgrade`
  const ended = (id: string, status: number) =>
    vi.waitFor(async () => {
      const { body } = await owner.get(`${path}/status?tracking_id=${id}`)
      expect(body.databaseUpgradeStatus).toMatchObject({ status })
      return body.databaseUpgradeStatus
    }, WAIT)
  const upgrade = (target: string, more = {}) => owner.post(path, { target_version: target, ...more })
  return { organization, owner, ref, path, upgrade, ended }
}

const versionOf = async (ref: string): Promise<number> =>
  (await adminRows<{ major: number }>(ref, `select current_setting('server_version_num')::int / 10000 as major`))[0]
    ?.major ?? 0

describe('an upgrade', () => {
  it('moves a project to the newest Postgres with all its data', async () => {
    const { owner, ref, path, upgrade, ended } = await newOldProject()
    expect(await owner.get(`${path}/status`)).toMatchObject({ status: 200, body: { databaseUpgradeStatus: null } })
    const migration = { name: 'posts', query: 'create table posts (id serial primary key, title text)' }
    expect((await owner.post(`/v1/projects/${ref}/database/migrations`, migration)).status).toBe(200)
    await runSql(
      owner,
      ref,
      `insert into posts (title) select 'Post ' || n from generate_series(1, 1000) as n;
      alter table posts enable row level security; create policy reads on posts for select to anon using (id < 10)`,
    )
    const eligibility = await owner.get(`${path}/eligibility`)
    expect(eligibility).toMatchObject({
      status: 200,
      body: {
        eligible: true,
        current_app_version: expect.stringMatching(/^17\./),
        target_upgrade_versions: [{ postgres_version: '18', release_channel: 'ga' }],
        validation_errors: [],
      },
    })
    expect(eligibility.body.duration_estimate_hours).toBeGreaterThan(0)
    const started = await upgrade('18')
    expect(started).toMatchObject({ status: 201, body: { tracking_id: expect.any(String) } })
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('UPGRADING')
    expect(await upgrade('18')).toMatchObject({ status: 409 })
    const done = await ended(started.body.tracking_id, 1)
    expect(done).toMatchObject({ target_version: '18', progress: '10_completed_post_physical_backup' })
    expect((await owner.get(`/v1/projects/${ref}`)).body).toMatchObject({
      status: 'ACTIVE_HEALTHY',
      database: { postgres_engine: '18', version: expect.stringMatching(/^18\./) },
    })
    const client = ownerClient(ref)
    await client.connect()
    expect((await client.query('insert into posts (title) values ($1) returning id', ['new'])).rows).toEqual([
      { id: 1001 },
    ])
    expect(
      (
        (await client.query('set role anon; select count(*)::int as n from posts')) as unknown as { rows: object[] }[]
      )[1]?.rows,
    ).toEqual([{ n: 9 }])
    await client.end()
    expect((await owner.get(`/v1/projects/${ref}/database/migrations`)).body).toMatchObject([{ name: 'posts' }])
    expect((await owner.get(`${path}/eligibility`)).body).toMatchObject({
      eligible: false,
      target_upgrade_versions: [],
    })
    expect(await upgrade('18')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('is the newest') },
    })
    expect((await owner.get(`${path}/status`)).body.databaseUpgradeStatus).toEqual({
      ...done,
      latest_status_at: expect.any(String),
    })
  })

  it('takes a backup of a project that has one, and restores none of the old version', async () => {
    const { owner, ref, upgrade, ended } = await newOldProject()
    const points = `/v1/projects/${ref}/database/backups`
    expect((await owner.post(`${points}/restore-point`, { name: 'before' })).status).toBe(201)
    await vi.waitFor(async () => {
      expect((await owner.get(`${points}/restore-point?name=before`)).body.status).toBe('AVAILABLE')
    }, WAIT)
    await ended((await upgrade('18')).body.tracking_id, 1)
    const rows = await control.select().from(backups).where(eq(backups.projectRef, ref)).orderBy(desc(backups.id))
    expect(rows).toMatchObject([
      { kind: 'scheduled', status: 'COMPLETED' },
      { kind: 'restore_point', status: 'COMPLETED' },
    ])
    const held = await askHost<{ id: string }[]>('GET', `/instances/${ref}/backups`)
    expect(held.map(({ id }) => Number(id)).sort()).toEqual(rows.map(({ id }) => id).sort())
    expect((await owner.post(`${points}/undo`, { name: 'before' })).status).toBe(201)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    const [task] = await control
      .select()
      .from(projectTasks)
      .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, 'restore_backup')))
    expect(task).toMatchObject({ state: 'failed', lastError: expect.stringContaining('of Postgres 17') })
    expect(await versionOf(ref)).toBe(18)
  })

  it('has one backup, however often the step that takes it is interrupted', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    const ofProject = eq(backups.projectRef, ref)
    const earlier = { projectRef: ref, kind: 'scheduled', insertedAt: new Date(0), completedAt: new Date(0) } as const
    await control.insert(backups).values({ ...earlier, status: 'COMPLETED' })
    await control.execute(sql`
      create function fail_${sql.raw(ref)}() returns trigger language plpgsql as $$
        begin raise exception 'the consumer died'; end $$`)
    await control.execute(sql`
      create trigger fail_${sql.raw(ref)} before update on project_tasks for each row
      when (new.project_ref = ${sql.raw(`'${ref}'`)} and new.input ? 'backupId' and not old.input ? 'backupId')
      execute function fail_${sql.raw(ref)}()`)
    await control.update(projects).set({ status: 'UPGRADING' }).where(eq(projects.ref, ref))
    const stepsDone = ['upgrade_database', 'check_health']
    const [task] = await control
      .insert(projectTasks)
      .values({ projectRef: ref, kind: 'upgrade', input: { version: '18' }, stepsDone, dueAt: new Date(0) })
      .returning()
    const taskRow = async () =>
      (
        await control
          .select()
          .from(projectTasks)
          .where(eq(projectTasks.id, task?.id ?? ''))
      )[0]
    await tick()
    const lastError = expect.stringContaining('the consumer died')
    await vi.waitFor(async () => expect(await taskRow()).toMatchObject({ lastError }), WAIT)
    await control.execute(sql`drop function fail_${sql.raw(ref)}() cascade`)
    await vi.waitFor(async () => expect(await taskRow()).toMatchObject({ state: 'done' }), WAIT)
    const rows = await control.select().from(backups).where(ofProject).orderBy(desc(backups.id))
    expect(rows.map(({ status }) => status)).toEqual(['COMPLETED', 'COMPLETED'])
    await owner.delete(`/v1/projects/${ref}`)
  })

  it('is noticed if it outlasts the attempts of its task', async () => {
    const { owner, ref, path } = await newOldProject()
    await askHost('POST', `/instances/${ref}/upgrade`, { version: '18' })
    await control.update(projects).set({ status: 'UPGRADING' }).where(eq(projects.ref, ref))
    const lost = { input: { version: '18' }, attempts: 6, lastError: 'the database host does not answer' }
    await control.insert(projectTasks).values({ projectRef: ref, kind: 'upgrade', ...lost, dueAt: new Date(0) })
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await owner.get(`${path}/status`)).body.databaseUpgradeStatus).toMatchObject({ status: 2 })
    await vi.waitFor(async () => {
      await tick()
      expect((await owner.get(`/v1/projects/${ref}`)).body).toMatchObject({ database: { postgres_engine: '18' } })
    }, WAIT)
  })

  it('leaves the project unhealthy until its new server answers', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    await onHost(ref, 'pause')
    await control.update(projects).set({ status: 'UPGRADING' }).where(eq(projects.ref, ref))
    const lastAttempt = { input: { version: '18' }, stepsDone: ['upgrade_database'], attempts: 5 }
    await control.insert(projectTasks).values({ projectRef: ref, kind: 'upgrade', ...lastAttempt, dueAt: new Date(0) })
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_UNHEALTHY')
    await onHost(ref, 'resume')
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  })

  it('can be undone by the operator', async () => {
    const { owner, ref, upgrade, ended } = await newOldProject()
    const { url, key } = inject('host')
    vi.stubEnv('HOST_URL', url)
    vi.stubEnv('HOST_KEY', key)
    vi.stubEnv('ENCRYPTION_KEY', inject('encryptionKey'))
    await expect(admin('upgrades', 'undo', ref)).rejects.toThrow('there is no data from before an upgrade')
    await ended((await upgrade('18')).body.tracking_id, 1)
    const password = `password ${crypto.randomUUID()}`
    expect(await owner.patch(`/v1/projects/${ref}/database/password`, { password })).toMatchObject({ status: 200 })
    await control.execute(sql`
      create function ${sql.raw(`fail_${ref}`)}() returns trigger language plpgsql as $$
        begin raise exception 'the connection was lost'; end $$`)
    await control.execute(sql`
      create trigger ${sql.raw(`fail_${ref}`)} before insert on audit_log for each row
      when (new.project_ref = ${sql.raw(`'${ref}'`)} and new.action = 'project.upgrade.undo')
      execute function ${sql.raw(`fail_${ref}`)}()`)
    await expect(admin('upgrades', 'undo', ref)).rejects.toThrow()
    await control.execute(sql`drop function ${sql.raw(`fail_${ref}`)}() cascade`)
    expect(await versionOf(ref)).toBe(17)
    // The repetition records the undoing that the host did before the connection was lost, and only once.
    expect(await admin('upgrades', 'undo', ref)).toMatch(/runs Postgres 17/)
    await expect(admin('upgrades', 'undo', ref)).rejects.toThrow('there is no data from before an upgrade')
    vi.unstubAllEnvs()
    expect((await owner.get(`/v1/projects/${ref}`)).body).toMatchObject({ database: { postgres_engine: '17' } })
    expect(await versionOf(ref)).toBe(17)
    await expect(ownerClient(ref).connect()).rejects.toThrow('password authentication failed')
    const client = ownerClient(ref, { password })
    await client.connect()
    await client.end()
  })

  it('leaves the project unchanged if it fails', async () => {
    const { owner, ref, upgrade, ended } = await newOldProject()
    await runSql(
      owner,
      ref,
      `create function old() returns boolean language sql as $$ select current_setting('server_version_num')::int < 180000 $$;
      create table kept (n int check (old())); insert into kept values (7)`,
    )
    const started = await upgrade('18.4')
    expect(await ended(started.body.tracking_id, 2)).toMatchObject({ error: '5_data_upgrade_completion_failed' })
    expect((await owner.get(`/v1/projects/${ref}`)).body).toMatchObject({
      status: 'ACTIVE_HEALTHY',
      database: { postgres_engine: '17' },
    })
    expect((await runSql(owner, ref, 'select n from kept')).body).toEqual([{ n: 7 }])
    expect(await versionOf(ref)).toBe(17)
  })
})

describe('an upgrade is refused', () => {
  it('while something prevents it, or for an unknown version', async () => {
    const { owner, ref, path, upgrade } = await newOldProject()
    for (const [target, more, field] of [
      ['19', {}, 'target_version'],
      ['17', {}, 'target_version'],
      ['18', { release_channel: 'beta' }, 'release_channel'],
      ['18', { release_channel: 'nightly' }, 'release_channel'],
      ['', {}, 'target_version'],
    ] as const) {
      expect(await upgrade(target, more)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining(`body.${field}`) },
      })
    }
    await runSql(owner, ref, `select pg_create_logical_replication_slot('mine', 'pgoutput')`)
    expect((await owner.get(`${path}/eligibility`)).body).toMatchObject({
      eligible: false,
      validation_errors: [{ type: 'active_replication_slot', slot_name: 'mine' }],
    })
    expect(await upgrade('18')).toMatchObject({ status: 400, body: { message: expect.stringContaining('mine') } })
    await runSql(owner, ref, `select pg_drop_replication_slot('mine')`)
    await runSql(
      owner,
      ref,
      `create subscription mine connection 'host=none password=none' publication p with (connect = false, slot_name = none)`,
    )
    expect((await owner.get(`${path}/eligibility`)).body).toMatchObject({
      eligible: false,
      validation_errors: [],
      objects_to_be_dropped: [expect.stringContaining('subscription mine')],
    })
    await onHost(ref, 'pause')
    expect(await owner.get(`${path}/eligibility`)).toMatchObject({ status: 503 })
    expect(await upgrade('18')).toMatchObject({ status: 503 })
    await onHost(ref, 'resume')
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    expect((await owner.get(`${path}/eligibility`)).body).toMatchObject({
      eligible: false,
      validation_errors: [{ type: 'project_hibernating' }],
    })
    expect(await upgrade('18')).toMatchObject({ status: 409 })
  })

  it('for callers without the right, who cannot see it either', async () => {
    const { organization, owner, ref, path } = await newOldProject()
    const other = (await newOrganization()).owner
    const userId = await newUser()
    await addMember(organization.id, userId, 'read-only')
    const [readOnly, reader, nobody] = [
      await tokenOf(userId),
      await tokenOf(organization.userId, { scopes: ['projects:read'] }),
      as(undefined),
    ]
    const body = { target_version: '18' }
    expect((await readOnly.post(path, body)).status).toBe(403)
    expect((await reader.post(path, body)).status).toBe(403)
    expect((await reader.get(`${path}/eligibility`)).status).toBe(200)
    expect((await reader.get(`${path}/status`)).status).toBe(200)
    const writer = await tokenOf(organization.userId, { scopes: ['projects:write'] })
    for (const rest of ['/eligibility', '/status']) {
      expect((await writer.get(path + rest)).status).toBe(403)
      expect((await other.get(path + rest)).status).toBe(404)
      expect((await nobody.get(path + rest)).status).toBe(401)
    }
    expect((await other.post(path, body)).status).toBe(404)
    expect((await nobody.post(path, body)).status).toBe(401)
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('ACTIVE_HEALTHY')
  })
})

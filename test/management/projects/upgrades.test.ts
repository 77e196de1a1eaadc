import { eq } from 'drizzle-orm'
import type pg from 'pg'
import { expect, inject, it, vi } from 'vitest'
import { STORAGE_VERSION } from '../../../src/engine/storage/schema.ts'
import { projects } from '../../../src/model/tables/index.ts'
import { adminClient, adminRows } from '../../instances.ts'
import { control, newOrganization, tick, workerLogs } from '../../support/api.ts'
import { newBranch, untilBranch } from '../../support/branches.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, untilStatus } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

/** The preparation names the version of the storage schema, among others. */
const PREPARED = { preparation: expect.stringContaining(STORAGE_VERSION) }

const HOUR_MS = 3_600_000
const LONG_AGO = new Date(0)

async function stateOf(ref: string) {
  const [row] = await control
    .select({ preparation: projects.preparation, dueAt: projects.preparationDueAt })
    .from(projects)
    .where(eq(projects.ref, ref))
  return row
}

const due = (ref: string, preparation = 'Storage, schema 0') =>
  control.update(projects).set({ preparation, preparationDueAt: LONG_AGO }).where(eq(projects.ref, ref))

/** Makes the project as an older version left it: without one of the functions for policies. */
async function makeOlder(ref: string): Promise<void> {
  await adminRows(ref, `comment on schema storage is 'Storage, schema 0'; drop function storage.extension(text)`)
}

const isOlder = async (ref: string): Promise<boolean> =>
  (await adminRows<{ older: boolean }>(ref, `select to_regprocedure('storage.extension(text)') is null as older`))[0]
    ?.older ?? true

/** Runs the cron until the assertion holds: projects of other tests may be due as well. */
const ticked = (assertion: () => Promise<void>) =>
  vi.waitFor(
    async () => {
      await tick()
      await assertion()
    },
    { timeout: WAIT_MS },
  )

it("updates a project's database to that of a new one, and does not check it again", async () => {
  const ref = await newProject(await newOrganization())
  expect(await stateOf(ref)).toMatchObject(PREPARED)
  await makeOlder(ref)
  expect(await isOlder(ref)).toBe(true)
  await due(ref)
  await ticked(async () => expect(await stateOf(ref)).toMatchObject(PREPARED))
  expect(await isOlder(ref)).toBe(false)
  const { preparation, dueAt } = (await stateOf(ref)) ?? {}
  await due(ref, preparation)
  await tick()
  expect(dueAt?.getTime()).toBeGreaterThan(Date.now())
  expect(await stateOf(ref)).toEqual({ preparation, dueAt: LONG_AGO })
})

it('retries a failed upgrade after an hour, and upgrades others meanwhile', async () => {
  const organization = await newOrganization()
  const [held, other] = [await newProject(organization), await newProject(organization)]
  await withOwner(held, async (owner) => {
    await owner.query('begin; create policy mine on storage.objects for select using (true)')
    await makeOlder(held)
    await due(held)
    await ticked(async () => expect((await stateOf(held))?.dueAt).not.toEqual(LONG_AGO))
    await expect.poll(() => failuresOf(held)).toHaveLength(1)
    const { preparation, dueAt } = (await stateOf(held)) ?? {}
    expect(preparation).toBe('Storage, schema 0')
    expect(dueAt?.getTime()).toBeGreaterThan(Date.now() + HOUR_MS / 2)
    await makeOlder(other)
    await due(other)
    await ticked(async () => expect(await stateOf(other)).toMatchObject(PREPARED))
    await owner.query('commit')
  })
  expect(await isOlder(held)).toBe(true)
  expect(await failuresOf(held)).toHaveLength(1)
  await due(held)
  await ticked(async () => expect(await stateOf(held)).toMatchObject(PREPARED))
  expect(await isOlder(held)).toBe(false)
})

async function withOwner(ref: string, work: (owner: pg.Client) => Promise<void>): Promise<void> {
  const owner = ownerClient(ref)
  await owner.connect()
  try {
    await work(owner)
  } finally {
    await owner.end()
  }
}

const failuresOf = async (ref: string) =>
  (await workerLogs(ref)).filter((line) => line.includes('project_upgrade_failed'))

it('waits for a paused project until it is resumed', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  await makeOlder(ref)
  await owner.post(`/v1/projects/${ref}/pause`)
  await untilStatus(owner, ref, 'INACTIVE')
  await due(ref)
  await tick()
  expect(await stateOf(ref)).toMatchObject({ dueAt: LONG_AGO })
  await owner.post(`/v1/projects/${ref}/restore`)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  await ticked(async () => expect(await stateOf(ref)).toMatchObject(PREPARED))
  expect(await isOlder(ref)).toBe(false)
})

it('checks a database again after a backup was restored to it', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  await makeOlder(ref)
  const backups = `/v1/projects/${ref}/database/backups`
  expect((await owner.post(`${backups}/restore-point`, { name: 'older' })).status).toBe(201)
  await vi.waitFor(
    async () =>
      expect((await owner.get(`${backups}/restore-point?name=older`)).body).toMatchObject({ status: 'AVAILABLE' }),
    { timeout: WAIT_MS, interval: 1_000 },
  )
  await due(ref)
  await ticked(async () => expect(await stateOf(ref)).toMatchObject(PREPARED))
  expect(await isOlder(ref)).toBe(false)
  expect((await owner.post(`${backups}/undo`, { name: 'older' })).status).toBe(201)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  await ticked(async () => expect(await stateOf(ref)).toMatchObject(PREPARED))
  expect(await isOlder(ref)).toBe(false)
})

it('checks a branch whose parent is older, when it is created and when it is reset', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const parent = await newProject(organization)
  await makeOlder(parent)
  const branch = await newBranch(owner, parent, { with_data: true })
  const ref = branch.project_ref
  const follows = async () => {
    await ticked(async () => expect(await stateOf(ref)).toMatchObject(PREPARED))
    expect(await isOlder(ref)).toBe(false)
  }
  await follows()
  expect((await owner.post(`/v1/branches/${ref}/reset`, {})).status).toBe(201)
  await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
  await follows()
  expect(await isOlder(parent)).toBe(true)
})

extended('finds due projects among 100,000 by one index lookup', async () => {
  const client = await adminClient('control', { database: new URL(inject('controlUrl')).pathname.slice(1) })
  await client.query(`begin; set local search_path = public; set local session_replication_role = replica;
    insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password, preparation)
      select 'none-' || n, gen_random_uuid(), 'none-' || n, 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '', '', 'v1'
        from generate_series(1, 100000) as n;
    analyze projects`)
  const other = (
    sign: string,
  ) => `(select ref from projects where removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY')
    and preparation ${sign} 'v1' and preparation_due_at <= now() order by preparation, preparation_due_at limit 1)`
  const { rows } = await client.query(`explain (analyze, buffers, format json) ${other('<')} union all ${other('>')}`)
  const [{ Plan: plan }] = rows[0]['QUERY PLAN']
  expect(JSON.stringify(plan)).not.toContain('Seq Scan')
  expect(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']).toBeLessThan(50)
  await client.query('rollback')
  await client.end()
})

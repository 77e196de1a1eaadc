import { and, desc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { actionRuns, branches, projects, projectTasks, RUN_STEPS } from '../../../src/model/tables/index.ts'
import { instancesOfHost } from '../../instances.ts'
import { control, newOrganization, tick } from '../../support/api.ts'
import { act, type BranchReply, migrate, newBranch, rows, untilBranch } from '../../support/branches.ts'
import { newProject, runSql, untilGone } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

type Run = typeof actionRuns.$inferSelect

/** Makes a project with one row, and a branch with a migration and a table without one. */
async function newPair() {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  await migrated(migrate(owner, ref, 'create table base (n int primary key); insert into base values (1)'))
  const branch = await newBranch(owner, ref)
  await migrated(migrate(owner, branch.project_ref, 'create table added (n int)'))
  await rows(owner, branch.project_ref, 'create table forgotten (n int)')
  return { owner, ref, branch }
}

async function migrated(reply: ReturnType<typeof migrate>): Promise<void> {
  expect(await reply).toMatchObject({ status: 200 })
}

async function lastRun({ id }: BranchReply): Promise<Run> {
  const where = eq(actionRuns.branchId, id)
  const [run] = await control.select().from(actionRuns).where(where).orderBy(desc(actionRuns.createdAt)).limit(1)
  if (!run) throw new Error('no run')
  return run
}

/** Leaves a run as a consumer that died after so many steps: their effects exist, perhaps more. */
async function abandon(branch: BranchReply, stepsDone: readonly string[], fields: Partial<Run> = {}): Promise<void> {
  const { id, taskId, steps } = await lastRun(branch)
  const before = steps.map((step) => (stepsDone.includes(step.name) ? step : { ...step, status: 'CREATED' as const }))
  await control
    .update(actionRuns)
    .set({ steps: before, ...fields })
    .where(eq(actionRuns.id, id))
  await control
    .update(branches)
    .set({ status: stepsDone.includes('clone') ? 'RUNNING_MIGRATIONS' : 'CREATING_PROJECT' })
    .where(eq(branches.id, branch.id))
  const died = { state: 'running' as const, claim: crypto.randomUUID(), leaseUntil: new Date(0), finishedAt: null }
  await control
    .update(projectTasks)
    .set({ ...died, stepsDone: [...stepsDone] })
    .where(eq(projectTasks.id, taskId ?? ''))
}

const setStatus = (ref: string, status: 'COMING_UP' | 'RESTORING') =>
  control.update(projects).set({ status }).where(eq(projects.ref, ref))

const tablesIn = (caller: Parameters<typeof rows>[0], ref: string) =>
  rows(caller, ref, `select tablename from pg_tables where schemaname = 'public' order by 1`)
const named = (...names: string[]) => names.map((tablename) => ({ tablename }))

/** Returns every prefix of the steps, the empty and the complete one included. */
const prefixes = (steps: readonly string[]) => ['', ...steps].map((_, count) => [steps.slice(0, count)] as const)
const COMPARING = ['pull', 'health', 'migrate', 'deploy']

async function untilDone(branch: BranchReply): Promise<void> {
  await vi.waitFor(() => expectDone(branch), { timeout: WAIT_MS, interval: 100 })
}

async function expectDone(branch: BranchReply): Promise<void> {
  const { steps, taskId, kept } = await lastRun(branch)
  expect(new Set(steps.map(({ status }) => status))).toEqual(new Set(['EXITED']))
  expect(kept).toBeNull()
  const [task] = await control
    .select()
    .from(projectTasks)
    .where(eq(projectTasks.id, taskId ?? ''))
  expect(task).toMatchObject({ state: 'done', claim: null, lastError: null })
  const open = and(eq(projectTasks.projectRef, branch.project_ref), eq(projectTasks.state, 'running'))
  expect(await control.select().from(projectTasks).where(open)).toEqual([])
}

/** Returns the host's instances whose name starts with the ref, complete or not. */
const leftOf = async (ref: string) => (await instancesOfHost()).filter((name) => name.startsWith(ref))

describe('after the death of the consumer of a run', () => {
  let pair: Awaited<ReturnType<typeof newPair>>
  beforeAll(async () => {
    pair = await newPair()
  })

  it.each(prefixes(COMPARING))('a merge continues after %j', async (stepsDone) => {
    const { owner, ref, branch } = pair
    expect(new Set(Object.values(await act(owner, branch, 'merge')))).toEqual(new Set(['EXITED']))
    await abandon(branch, stepsDone)
    await tick()
    await untilDone(branch)
    expect(await tablesIn(owner, ref)).toEqual(named('added', 'base'))
    expect((await owner.get(`/v1/projects/${ref}/database/migrations`)).body).toHaveLength(2)
  })

  it.each(prefixes(['keep', ...RUN_STEPS]))(
    'a reset continues after %j, and keeps the migrations',
    async (stepsDone) => {
      const { owner, branch } = pair
      const own = branch.project_ref
      const history = (await owner.get(`/v1/projects/${own}/database/migrations`)).body
      await act(owner, branch, 'reset')
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      await abandon(branch, stepsDone, { kept: await keptOf(owner, own) })
      await setStatus(own, 'RESTORING')
      await tick()
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      await untilDone(branch)
      expect(await tablesIn(owner, own)).toEqual(named('added', 'base'))
      expect((await owner.get(`/v1/projects/${own}/database/migrations`)).body).toEqual(history)
      expect(await leftOf(own)).toEqual([own])
    },
  )

  it.each(prefixes(RUN_STEPS))('the creation of a branch continues after %j', async (stepsDone) => {
    const { owner, ref } = pair
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await abandon(branch, stepsDone)
    await setStatus(own, 'COMING_UP')
    await tick()
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await untilDone(branch)
    expect(await leftOf(own)).toEqual([own])
    expect(await rows(owner, own, 'select count(*)::int as n from base')).toEqual([{ n: 0 }])
    expect(await rows(owner, ref, 'select n from base')).toEqual([{ n: 1 }])
  })

  it('nothing is left of a branch that was deleted meanwhile', async () => {
    const { owner, branch } = pair
    const own = branch.project_ref
    await act(owner, branch, 'reset')
    await abandon(branch, ['clone'])
    await setStatus(own, 'RESTORING')
    expect(await owner.delete(`/v1/branches/${own}`)).toMatchObject({ status: 200 })
    await tick()
    await untilGone(owner, own)
    expect(await leftOf(own)).toEqual([])
  })
})

describe('after the death of the consumer of a push', () => {
  let pair: Awaited<ReturnType<typeof newPair>>
  beforeAll(async () => {
    pair = await newPair()
    // Versions are seconds: one that the branch has already would be skipped.
    const later = pair.owner.at(new Date(Date.now() + 60_000))
    await migrated(migrate(later, pair.ref, 'create table pushed (n int)', 'push'))
  })

  const versions = async (project: string) =>
    (await pair.owner.get(`/v1/projects/${project}/database/migrations`)).body.map(
      ({ version }: { version: string }) => version,
    )

  async function goOn(stepsDone: readonly string[], undo = 'select 1'): Promise<void> {
    const { owner, branch } = pair
    expect(new Set(Object.values(await act(owner, branch, 'push')))).toEqual(new Set(['EXITED']))
    await rows(owner, branch.project_ref, undo)
    await abandon(branch, stepsDone)
    await tick()
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await untilDone(branch)
    expect(await tablesIn(owner, branch.project_ref)).toEqual(named('added', 'base', 'forgotten', 'pushed'))
    expect(await versions(branch.project_ref)).toEqual(expect.arrayContaining(await versions(pair.ref)))
  }

  it.each(prefixes(COMPARING))('it continues after %j, and repeats nothing', (stepsDone) => goOn(stepsDone))

  const undo = `drop table pushed; delete from supabase_migrations.schema_migrations where name = 'push'`
  it.each(prefixes(['pull', 'health']))('it continues after %j, and does the missing steps', (stepsDone) =>
    goOn(stepsDone, undo),
  )
})

/** Returns the migrations as a reset keeps them before it removes the database. */
async function keptOf(caller: Parameters<typeof rows>[0], ref: string): Promise<NonNullable<Run['kept']>> {
  const { body } = await runSql(
    caller,
    ref,
    'select version, name, statements, rollback, created_by, idempotency_key from supabase_migrations.schema_migrations order by version',
  )
  return body
}

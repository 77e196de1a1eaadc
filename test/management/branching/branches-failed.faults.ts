import { and, desc, eq, isNotNull } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import { actionRuns, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { onHost } from '../../instances.ts'
import { type Caller, control, newOrganization, tick } from '../../support/api.ts'
import {
  act,
  type BranchReply,
  createBranch,
  migrate,
  newBranch,
  rows,
  runOf,
  untilBranch,
} from '../../support/branches.ts'
import { newProject, untilStatus } from '../../support/projects.ts'
import { newReceiver } from '../../support/receiver.ts'
import { WAIT_MS } from '../../support/wait.ts'

const WAIT = { timeout: WAIT_MS, interval: 100 }

async function newParent(): Promise<{ owner: Caller; ref: string }> {
  const organization = await newOrganization()
  return { owner: organization.owner, ref: await newProject(organization) }
}

const versions = async (owner: Caller, ref: string): Promise<string[]> =>
  (await owner.get(`/v1/projects/${ref}/database/migrations`)).body.map(({ version }: { version: string }) => version)

async function lastRun({ project_ref: ref }: BranchReply) {
  const where = eq(actionRuns.projectRef, ref)
  const [run] = await control.select().from(actionRuns).where(where).orderBy(desc(actionRuns.createdAt)).limit(1)
  if (!run?.taskId) throw new Error('no run')
  return { id: run.id, taskId: run.taskId }
}

const stepsOf = async (owner: Caller, ref: string, id: string) =>
  Object.fromEntries((await runOf(owner, ref, id)).run_steps.map(({ name, status }) => [name, status]))

describe('a reset that fails', () => {
  it('loses no migration: a reset that succeeds restores them', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, own, 'create table first (n int)')
    await rows(owner, own, 'create table by_hand (n int)')
    await migrate(owner, own, 'alter table by_hand add column m int')
    await migrate(owner, own, 'create table last (n int)')
    const all = await versions(owner, own)
    expect(all).toHaveLength(3)

    expect(await act(owner, branch, 'reset')).toMatchObject({ clone: 'EXITED', migrate: 'DEAD', seed: 'CREATED' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    expect(await versions(owner, own)).toEqual(all.slice(0, 1))
    // A user who does not know why it failed would try again.
    expect(await act(owner, branch, 'reset')).toMatchObject({ migrate: 'DEAD' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    const saved = () => control.$count(actionRuns, and(eq(actionRuns.projectRef, own), isNotNull(actionRuns.kept)))
    expect(await saved(), 'one history, however many resets failed').toBe(1)

    await rows(owner, ref, 'create table by_hand (n int)')
    expect(await act(owner, branch, 'reset')).toMatchObject({ migrate: 'EXITED', deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await versions(owner, own)).toEqual(all)
    expect(await rows(owner, own, 'select * from first, by_hand, last')).toEqual([])
    expect(await saved()).toBe(0)
  })
})

describe('two migrations of the same version', () => {
  it('are not taken for the same one: the push reports them, and continues once one has another version', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    const sameSecond = owner.at(new Date(Date.now() + 5_000))
    await migrate(sameSecond, own, 'create table of_branch (n int)')
    await migrate(sameSecond, ref, 'create table of_parent (n int)')
    const [version] = await versions(owner, own)
    expect(await versions(owner, ref)).toEqual([version])

    expect(await act(owner, branch, 'push')).toMatchObject({ pull: 'EXITED', migrate: 'DEAD' })
    const { id } = await lastRun(branch)
    const log = await owner.get(`/v1/projects/${ref}/actions/${id}/logs`)
    expect(log.body).toContain(`${own} has a different migration ${version}`)

    const history = 'supabase_migrations.schema_migrations'
    await rows(owner, own, `update ${history} set version = version::bigint + 1 where version = '${version}'`)
    expect(await act(owner, branch, 'push')).toMatchObject({ migrate: 'EXITED', deploy: 'EXITED' })
    expect(await rows(owner, own, 'select * from of_branch, of_parent')).toEqual([])
    expect(await act(owner, branch, 'merge')).toMatchObject({ migrate: 'EXITED' })
    expect(await rows(owner, ref, 'select * from of_branch, of_parent')).toEqual([])
  })

  it('are the same if their text is, however it is split into statements', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    const sql = 'create table a (n int); create table b (n int);'
    const sameSecond = owner.at(new Date(Date.now() + 5_000))
    await migrate(sameSecond, branch.project_ref, sql)
    await migrate(sameSecond, ref, sql)
    const statements = `array['create table a (n int)', 'create table b (n int)']`
    await rows(owner, ref, `update supabase_migrations.schema_migrations set statements = ${statements}`)
    expect(await act(owner, branch, 'push')).toMatchObject({ migrate: 'EXITED' })
  })
})

describe('a branch whose parent cannot be copied', () => {
  it('reports that, keeps retrying, and can be reset after it gave up, whatever a client said of its steps', async () => {
    const { owner, ref } = await newParent()
    await migrate(owner, ref, 'create table base (n int)')
    await onHost(ref, 'pause')
    const branch = await createBranch(owner, ref)
    const { id, taskId } = await lastRun(branch)
    await vi.waitFor(
      async () => expect(await stepsOf(owner, ref, id)).toMatchObject({ clone: 'RESTARTING', pull: 'CREATED' }),
      WAIT,
    )
    const claimed = await owner.patch(`/v1/projects/${ref}/actions/${id}/status`, { health: 'EXITED' })
    expect(claimed).toMatchObject({ status: 200 })
    await vi.waitFor(async () => {
      await control
        .update(projectTasks)
        .set({ attempts: 5, dueAt: new Date(0) })
        .where(eq(projectTasks.id, taskId))
      await tick()
      expect(await stepsOf(owner, ref, id)).toMatchObject({ clone: 'DEAD', pull: 'CREATED' })
    }, WAIT)
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED', 'INIT_FAILED')
    const own = branch.project_ref
    expect(await owner.post(`/v1/branches/${own}/push`, {})).toMatchObject({ status: 409 })

    await onHost(ref, 'resume')
    expect(await act(owner, branch, 'reset')).toMatchObject({ clone: 'EXITED', deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, 'select * from base')).toEqual([])
    expect(await versions(owner, own)).toEqual(await versions(owner, ref))
  })
})

describe('a branch that is deleted', () => {
  it('ends its merge, so that the parent waits for nothing', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    await act(owner, branch, 'merge')
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    const { id, taskId } = await lastRun(branch)
    const leased = {
      state: 'running' as const,
      claim: crypto.randomUUID(),
      leaseUntil: new Date(Date.now() + 3_600_000),
    }
    await control
      .update(projectTasks)
      .set({ ...leased, finishedAt: null })
      .where(eq(projectTasks.id, taskId))
    await control
      .update(actionRuns)
      .set({ steps: (await runOf(owner, ref, id)).run_steps.map((step) => ({ ...step, status: 'RUNNING' })) as never })
      .where(eq(actionRuns.id, id))
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 409 })
    expect(await owner.delete(`/v1/branches/${branch.id}`)).toMatchObject({ status: 200 })
    expect(new Set(Object.values(await stepsOf(owner, ref, id)))).toEqual(new Set(['DEAD']))
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 200 })
    await untilStatus(owner, ref, 'INACTIVE')
  })

  it('stays if it is made persistent within the hour', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    const path = `/v1/branches/${branch.project_ref}`
    const anHourAgo = owner.at(new Date(Date.now() - 3_600_001))
    expect(await anHourAgo.delete(`${path}?force=false`)).toMatchObject({ status: 200 })
    expect((await owner.patch(path, { persistent: true })).body).not.toHaveProperty('deletion_scheduled_at')
    await tick()
    expect(await owner.get(path)).toMatchObject({ status: 200, body: { status: 'ACTIVE_HEALTHY' } })
  })
})

describe('the settings of a branch', () => {
  it('are those of its parent, except its own, and the database applies them', async () => {
    const { owner, ref } = await newParent()
    const config = (of: string) => `/v1/projects/${of}/config/database/postgres`
    expect(await owner.put(config(ref), { work_mem: '7MB' })).toMatchObject({ status: 200 })
    const name = crypto.randomUUID()
    const attributes = { name, desired_disk_size_gb: 16 }
    const made = await owner.post(`/v2/projects/${ref}/branches`, { data: { type: 'branch', attributes } })
    expect(made.status).toBe(201)
    const own = made.body.data.attributes.project_ref
    const branch = { name, parent_project_ref: ref, project_ref: own }
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    const disk = async () => (await owner.get(`/v1/projects/${own}/config/disk`)).body.attributes.size_gb
    expect(await disk()).toBe(16)
    expect((await owner.get(config(own))).body).toMatchObject({ work_mem: '7MB' })
    expect(await rows(owner, own, 'show work_mem')).toEqual([{ work_mem: '7MB' }])

    expect(await owner.put(config(own), { work_mem: '9MB' })).toMatchObject({ status: 200 })
    expect(await act(owner, branch, 'reset')).toMatchObject({ configure: 'EXITED', deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, 'show work_mem')).toEqual([{ work_mem: '9MB' }])
    expect(await disk()).toBe(16)
  })
})

describe('the default branch', () => {
  it('keeps the URL to notify, and accepts no secrets, because it has those of the project', async () => {
    const { owner, ref } = await newParent()
    const fields = { branch_name: 'production', is_default: true }
    const refused = await owner.post(`/v1/projects/${ref}/branches`, { ...fields, secrets: { A: 'b' } })
    expect(refused).toMatchObject({ status: 422 })
    const notify_url = (await newReceiver()).url
    expect(await createBranch(owner, ref, { ...fields, notify_url })).toMatchObject({ is_default: true, notify_url })
  })
})

it('of five branches of one name that are created at once, one remains and nothing of the others', async () => {
  const { owner, ref } = await newParent()
  const create = () => owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'once' })
  const replies = await Promise.all(Array.from({ length: 5 }, create))
  expect(replies.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409, 409])
  const branch = replies.find(({ status }) => status === 201)?.body as BranchReply
  await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
  const listed = (await owner.get(`/v1/projects/${ref}/branches`)).body as BranchReply[]
  expect(listed.map(({ name }) => name)).toEqual(['main', 'once'])
  const made = await control.select({ ref: projects.ref }).from(projects).where(eq(projects.parentRef, ref))
  expect(made).toEqual([{ ref: branch.project_ref }])
})

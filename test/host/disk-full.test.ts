import { desc, eq } from 'drizzle-orm'
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { actionRunLogs, actionRuns, projectTasks } from '../../src/model/tables/index.ts'
import { adminRows } from '../instances.ts'
import { type Caller, control, newOrganization } from '../support/api.ts'
import { act, type BranchReply, createBranch, migrate, newBranch, rows, untilBranch } from '../support/branches.ts'
import { newProject } from '../support/projects.ts'

vi.setConfig({ testTimeout: 90_000 })

async function newParent(): Promise<{ owner: Caller; ref: string }> {
  const organization = await newOrganization()
  return { owner: organization.owner, ref: await newProject(organization) }
}

async function lastRun({ id }: BranchReply) {
  const where = eq(actionRuns.branchId, id)
  const [run] = await control.select().from(actionRuns).where(where).orderBy(desc(actionRuns.createdAt)).limit(1)
  if (!run?.taskId) throw new Error('no run')
  return { ...run, taskId: run.taskId }
}

const linesOf = async (runId: string) =>
  (await control.select().from(actionRunLogs).where(eq(actionRunLogs.runId, runId))).map(({ line }) => line).join('\n')

/** Makes a statement of one project's database fail as a write does on a full disk. */
const fill = (ref: string) =>
  adminRows(
    ref,
    `create or replace function public.fill() returns int language plpgsql security definer as $$
      begin copy (select 1) to '/dev/full'; return 1; end $$`,
  )

const free = (ref: string) =>
  adminRows(ref, 'create or replace function public.fill() returns int language sql return 1')

describe('a migration that finds the disk full', () => {
  it('answers with the code of Postgres, keeps nothing, and can be sent again', async () => {
    const { owner, ref } = await newParent()
    await fill(ref)
    const send = () => migrate(owner, ref, 'create table kept as select 1 as n; insert into kept select fill()')
    const message = expect.stringMatching(/53100.*No space left on device/)
    expect(await send()).toMatchObject({ status: 400, body: { message, code: '53100' } })
    expect(await rows(owner, ref, `select to_regclass('kept') is null as gone`)).toEqual([{ gone: true }])
    expect((await owner.get(`/v1/projects/${ref}/database/migrations`)).body).toEqual([])
    await free(ref)
    expect(await send()).toMatchObject({ status: 200 })
    expect(await rows(owner, ref, 'select n from kept')).toHaveLength(2)
  })

  it('stops a push, which reports the reason, and can be pushed again', async () => {
    const { owner, ref } = await newParent()
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await Promise.all([free(ref), fill(own)])
    await migrate(owner, ref, 'create table before (n int)')
    await migrate(owner, ref, 'create table kept as select 1 as n; insert into kept select fill()')
    expect(await act(owner, branch, 'push')).toMatchObject({ migrate: 'DEAD', deploy: 'CREATED' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    expect(await linesOf((await lastRun(branch)).id)).toContain('No space left on device')
    const there = `select to_regclass('before') is not null as before, to_regclass('kept') is not null as kept`
    expect(await rows(owner, own, there)).toEqual([{ before: true, kept: false }])
    expect((await owner.get(`/v1/projects/${own}/database/migrations`)).body).toHaveLength(1)
    await free(own)
    expect(await act(owner, branch, 'push')).toMatchObject({ migrate: 'EXITED', deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, there)).toEqual([{ before: true, kept: true }])
  })
})

/** Runs a shell command in the folder of the instance's data. */
const shell = (ref: string, command: string) => adminRows(ref, `copy (select) to program 'cat > /dev/null; ${command}'`)

const PATH_BYTES_MAX = 4095

/** Makes a file whose path has the maximum length: a copy has a longer folder name, so the system refuses it. */
async function refuseCopies(ref: string): Promise<void> {
  const [found] = await adminRows<{ bytes: number }>(
    ref,
    `select octet_length(current_setting('data_directory'))::int as bytes`,
  )
  const left = PATH_BYTES_MAX - (found?.bytes ?? 0) - '/deep'.length
  const part = `/${'d'.repeat(99)}`
  const file = `/${'f'.repeat((left % 100) + 99)}`
  const path = `deep${part.repeat(Math.floor(left / 100) - 1)}`
  await shell(ref, `mkdir -p ${path} && touch ${path}${file}`)
}

/** Returns the host's folder of the instance, and drafts of it. */
async function foldersOf(ref: string): Promise<string[]> {
  const { url, key } = inject('host')
  const response = await fetch(`${url}/host/v1/instances`, { headers: { authorization: `Bearer ${key}` } })
  const names = ((await response.json()) as { name: string }[]).map(({ name }) => name)
  const folder = await adminRows<{ name: string }>(
    'control',
    `select pg_ls_dir as name from pg_ls_dir(current_setting('data_directory') || '/../..')`,
  )
  return [...names, ...folder.map(({ name }) => name)].filter((name) => name.startsWith(ref))
}

describe('a copy that the file system refuses', () => {
  it('leaves nothing, reports the reason, and is retried without help once there is room', async () => {
    const { owner, ref } = await newParent()
    await rows(owner, ref, 'create table large as select generate_series(1, 100) as n')
    await refuseCopies(ref)
    const allow = () => shell(ref, 'rm -rf deep')
    onTestFinished(() => allow().then(() => {}))
    const branch = await createBranch(owner, ref, { with_data: true })
    const own = branch.project_ref
    const reason = async () => {
      const [task] = await control.select().from(projectTasks).where(eq(projectTasks.projectRef, own))
      return task?.lastError
    }
    await expect.poll(reason).toContain('The host failed: ENAMETOOLONG: name too long')
    expect(await foldersOf(own)).toEqual([])
    expect(await rows(owner, ref, 'select count(*)::int as n from large')).toEqual([{ n: 100 }])

    await allow()
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, 'select count(*)::int as n from large')).toEqual([{ n: 100 }])
  })
})

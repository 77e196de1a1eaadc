import { desc, eq } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import { actionRunLogs, actionRuns } from '../src/db/schema/index.ts'
import { type Caller, control, newOrganization } from './api.ts'
import { act, type BranchReply, createBranch, migrate, newBranch, rows, untilBranch } from './branches.ts'
import { asAdmin, leftOf, withClient } from './engine/copy-projects.ts'
import { newProject } from './projects.ts'

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

/** What the kernel answers to a write where no room is left, in the database of one project. */
const fill = (ref: string) =>
  withClient(asAdmin(`p_${ref}`), (admin) =>
    admin.query(`create or replace function public.fill() returns int language plpgsql security definer as $$
      begin copy (select 1) to '/dev/full'; return 1; end $$`),
  )

const free = (ref: string) =>
  withClient(asAdmin(`p_${ref}`), (admin) =>
    admin.query('create or replace function public.fill() returns int language sql return 1'),
  )

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

  it('stops a push, which says why, and can be pushed again', async () => {
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

/** In a copy there is no room for a row of this table; in the parent there is. */
const roomIn = (ref: string) => `
  create function public.only_here() returns int language plpgsql immutable as $$
    begin
      if current_database() <> 'p_${ref}' then raise 'no space left on device' using errcode = 'disk_full'; end if;
      return 1;
    end $$;
  create table large (id int, n int generated always as (public.only_here()) stored);
  insert into large (id) select generate_series(1, 100)`
const ROOM = 'create or replace function public.only_here() returns int language sql immutable return 1'

describe('a copy that finds the disk full', () => {
  it('leaves nothing, says why, and can be made again', async () => {
    const { owner, ref } = await newParent()
    await rows(owner, ref, roomIn(ref))
    // A parent in use is copied row by row.
    await withClient(asAdmin(`p_${ref}`), async () => {
      const branch = await createBranch(owner, ref, { with_data: true })
      const own = branch.project_ref
      await untilBranch(owner, branch, 'MIGRATIONS_FAILED', 'INIT_FAILED')
      const { id, steps } = await lastRun(branch)
      expect(steps.map(({ status }) => status)).toEqual(['DEAD', ...Array(6).fill('CREATED')])
      expect(await linesOf(id)).toContain('no space left on device')
      expect(await leftOf(own)).toEqual([])
      expect(await rows(owner, ref, 'select count(*)::int as n from large')).toEqual([{ n: 100 }])

      await rows(owner, ref, ROOM)
      expect(await act(owner, branch, 'reset')).toMatchObject({ clone: 'EXITED', deploy: 'EXITED' })
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      expect(await rows(owner, own, 'select count(*)::int as n from large')).toEqual([{ n: 100 }])
    })
  })
})

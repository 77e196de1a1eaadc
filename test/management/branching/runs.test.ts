import { and, desc, eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { actionRunLogs, actionRuns, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { purgeLogs } from '../../../src/outbound/logs/purge.ts'
import { type Caller, control, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { act, type BranchReply, migrate, newBranch, rows, runOf, untilBranch } from '../../support/branches.ts'
import { extended } from '../../support/extended.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

const WAIT = { timeout: WAIT_MS, interval: 100 }

let organization: TestOrganization
let ref: string
let branch: BranchReply
let owner: Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  branch = await newBranch(organization.owner, ref)
  owner = await newMember(organization, 'owner')
})

const record = (caller: Caller, of: string, query: string) =>
  caller.put(`/v1/projects/${of}/database/migrations`, { query })

async function lastLog(of: string): Promise<string> {
  const [run] = (await owner.get(`/v1/projects/${of}/actions`)).body
  return (await owner.get(`/v1/projects/${of}/actions/${run.id}/logs`)).body
}

describe('a run', () => {
  it('delays no other project, however long it takes', async () => {
    const { project_ref: own } = branch
    for (let n = 0; n < 10; n++) await record(owner, own, 'select pg_sleep(4)')
    const { workflow_run_id: id } = (await owner.post(`/v1/branches/${own}/merge`, {})).body
    const migrating = async () =>
      (await runOf(owner, own, id)).run_steps.find(({ name }) => name === 'migrate')?.status === 'RUNNING'
    await vi.waitFor(async () => expect(await migrating()).toBe(true), { timeout: WAIT_MS, interval: 500 })
    await newProject(await newOrganization())
    expect(await migrating()).toBe(true)
  })
})

describe('a run of another branch', () => {
  let own: string
  let other: BranchReply
  let parent: string
  beforeAll(async () => {
    parent = await newProject(organization)
    other = await newBranch(owner, parent)
    own = other.project_ref
  })

  it('says about a failure of the installation only where to look for it', async () => {
    await control.execute(
      sql.raw(`
      create function refuse_kept() returns trigger language plpgsql as $$ begin raise exception 'inner workings'; end $$;
      create trigger refuse_kept before update on action_runs for each row
        when (new.kept is not null and new.project_ref = '${own}') execute function refuse_kept()`),
    )
    await migrate(owner, own, `select 'words of a migration'`)
    await owner.post(`/v1/branches/${own}/reset`, {})
    const failed = vi.waitFor(
      async () => {
        const text = await lastLog(own)
        expect(text).toContain('failed: ')
        return text
      },
      { ...WAIT, interval: 1_000 },
    )
    const task = await vi.waitFor(async () => {
      const [task] = await control
        .select()
        .from(projectTasks)
        .where(and(eq(projectTasks.projectRef, own), eq(projectTasks.kind, 'branch_reset')))
        .orderBy(desc(projectTasks.createdAt))
      expect(task?.lastError).toContain('inner workings')
      return task
    }, WAIT)
    const text = await failed
    expect(text).toContain(`clone: failed: internal error (task ${task?.id}); it will be retried\n`)
    expect(text).not.toMatch(/inner workings|Failed query|words of a migration/)
    expect(task?.lastError).not.toContain('words of a migration')
    await vi.waitFor(async () => {
      const [project] = await control.select().from(projects).where(eq(projects.ref, own))
      expect(project?.statusReason).toBe(`branch_reset: internal error (task ${task?.id})`)
    }, WAIT)
    await control.execute(sql.raw('drop trigger refuse_kept on action_runs; drop function refuse_kept()'))
    await untilBranch(owner, other, 'FUNCTIONS_DEPLOYED')
  })

  it('is retried if Postgres ended a migration for a temporary reason', async () => {
    await rows(owner, parent, 'create sequence tries; select 1 as done')
    await record(
      owner,
      own,
      `do $$ begin if nextval('tries') = 1 then raise exception 'deadlock detected' using errcode = '40P01'; end if; end $$`,
    )
    expect(await act(owner, other, 'merge')).toMatchObject({ migrate: 'EXITED' })
    expect(await lastLog(own)).toMatch(/migrate: failed: deadlock detected; it will be retried\n/)
    expect(await rows(owner, parent, 'select last_value::int as tries from tries')).toEqual([{ tries: 2 }])
  })

  extended('ends if the history is endless', async () => {
    await rows(
      owner,
      own,
      `alter table supabase_migrations.schema_migrations rename to aside;
       create view supabase_migrations.schema_migrations as
        select to_char(clock_timestamp(), 'YYYYMMDDHH24MISSUS') || lpad(n::text, 4, '0') as version,
          array['select 1'] as statements from generate_series(1, 2000) n;
       select 1 as done`,
    )
    expect(await act(owner, other, 'merge')).toMatchObject({ pull: 'DEAD' })
    expect(await lastLog(own)).toMatch(/pull: failed: [a-z]{20} has more than 100000 migrations/)
    await rows(
      owner,
      own,
      `drop view supabase_migrations.schema_migrations;
       alter table supabase_migrations.aside rename to schema_migrations;
       select 1 as done`,
    )
  })

  extended('ends if the migrations to keep are too large', async () => {
    await rows(
      owner,
      own,
      `insert into supabase_migrations.schema_migrations (version, statements)
        select '30000101' || lpad(n::text, 6, '0'), array['-- ' || repeat('x', 1000000)] from generate_series(1, 20) n;
       select 1 as done`,
    )
    expect(await act(owner, other, 'reset')).toMatchObject({ clone: 'DEAD' })
    expect(await lastLog(own)).toMatch(
      /clone: failed: the migrations of [a-z]{20} are larger than 15728640 bytes as JSON/,
    )
  })
})

describe('the log of a run', () => {
  let parent: string
  let other: BranchReply
  let run: string
  beforeAll(async () => {
    parent = await newProject(organization)
    other = await newBranch(owner, parent)
    run = (await owner.get(`/v1/projects/${parent}/actions`)).body[0].id
  })

  const logOf = (id: string) => owner.get(`/v1/projects/${parent}/actions/${id}/logs`)

  extended('names the first 1,000 migrations, by at most 200 characters, and the number of all', async () => {
    await migrate(owner, parent, 'select 1')
    await rows(
      owner,
      parent,
      `insert into supabase_migrations.schema_migrations (version, name)
        select '3000' || lpad(n::text, 10, '0'), repeat('n', 4000) from generate_series(1, 1010) n;
       select 1 as done`,
    )
    expect(await act(owner, other, 'push')).toMatchObject({ migrate: 'EXITED' })
    const lines = (await lastLog(other.project_ref)).split('\n').filter((line) => line.includes(' migrate: '))
    const applied = lines.filter((line) => line.includes('applying '))
    expect(applied).toHaveLength(1_000)
    expect(Math.max(...applied.map((line) => line.split(' migrate: ')[1]?.length ?? 0))).toBe(200)
    expect(lines.slice(1_000).map((line) => line.split(' migrate: ')[1])).toEqual([
      'further migrations are only counted',
      `1011 migrations applied to ${other.project_ref}`,
    ])
  })

  it('is answered with its last 4 MiB', async () => {
    await control.execute(sql`insert into action_run_logs (run_id, step, line, at)
      select ${run}, 'deploy', n || repeat('x', 3996), now() from generate_series(1, 5000) n order by n`)
    const { status, body } = await logOf(run)
    expect(status).toBe(200)
    expect(body.length).toBeLessThanOrEqual(4 * 1024 ** 2 + 100)
    const [first, ...rest]: string[] = body.trimEnd().split('\n')
    const before = await control.$count(actionRunLogs, eq(actionRunLogs.runId, run))
    expect(first).toBe(`${before - rest.length} earlier lines are left out`)
    expect(rest.length).toBeGreaterThan(1_000)
    expect(rest.at(-1)).toMatch(/ deploy: 5000x+$/)
  })

  it('is kept for 7 days, and the run with its steps for as long as the parent', async () => {
    await control.delete(actionRunLogs).where(eq(actionRunLogs.runId, run))
    const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000)
    const line = { runId: run, step: 'deploy' as const }
    await control.insert(actionRunLogs).values([
      { ...line, line: 'old', at: daysAgo(8) },
      { ...line, line: 'young', at: daysAgo(6) },
    ])
    const log = { info: () => {}, error: () => {} }
    await purgeLogs({ db: control, now: () => new Date(), log } as unknown as SystemCtx)
    expect((await logOf(run)).body).toMatch(/^\S+ deploy: young\n$/)
    expect(await owner.delete(`/v1/branches/${other.id}`)).toMatchObject({ status: 200 })
    await untilGone(owner, other.project_ref)
    expect((await runOf(owner, parent, run)).run_steps).toHaveLength(7)
    expect(await owner.delete(`/v1/projects/${parent}`)).toMatchObject({ status: 200 })
    await untilGone(owner, parent)
    expect(await control.$count(actionRuns, eq(actionRuns.parentRef, parent))).toBe(0)
    expect(await control.$count(actionRunLogs, eq(actionRunLogs.runId, run))).toBe(0)
  })
})

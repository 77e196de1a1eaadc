import { beforeAll, describe, expect, it, vi } from 'vitest'
import { type Caller, newMember, newOrganization, type TestOrganization } from './api.ts'
import { act, type BranchReply, newBranch, rows, runOf } from './branches.ts'
import { newProject } from './projects.ts'

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
  it('keeps no other project waiting, however long it takes', async () => {
    const { project_ref: own } = branch
    for (let n = 0; n < 10; n++) await record(owner, own, 'select pg_sleep(4)')
    const { workflow_run_id: id } = (await owner.post(`/v1/branches/${own}/merge`, {})).body
    const migrating = async () =>
      (await runOf(owner, own, id)).run_steps.find(({ name }) => name === 'migrate')?.status === 'RUNNING'
    await vi.waitFor(async () => expect(await migrating()).toBe(true), { timeout: 20_000, interval: 500 })
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

  it('ends where the history has no end', async () => {
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

  it('ends where the migrations to keep are too large', async () => {
    await rows(
      owner,
      own,
      `insert into supabase_migrations.schema_migrations (version, statements)
        select '30000101' || lpad(n::text, 6, '0'), array['-- ' || repeat('x', 1000000)] from generate_series(1, 20) n;
       select 1 as done`,
    )
    expect(await act(owner, other, 'reset')).toMatchObject({ clone: 'DEAD' })
    expect(await lastLog(own)).toMatch(/clone: failed: the migrations of [a-z]{20} are larger than 16777216 bytes/)
  })
})

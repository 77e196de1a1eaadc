import { beforeAll, describe, expect, it, vi } from 'vitest'
import { type Caller, newMember, newOrganization, type TestOrganization } from './api.ts'
import { type BranchReply, newBranch, runOf } from './branches.ts'
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

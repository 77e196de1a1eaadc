import { expect, vi } from 'vitest'
import type { Caller, Reply } from './api.ts'
import { runSql } from './projects.ts'

const WAIT = { timeout: 40_000, interval: 500 }

export interface BranchReply {
  id: string
  name: string
  project_ref: string
  parent_project_ref: string
  is_default: boolean
  persistent: boolean
  with_data: boolean
  status: string
  git_branch?: string
  notify_url?: string
  deletion_scheduled_at?: string
  preview_project_status: string
  created_at: string
  updated_at: string
}

export async function createBranch(
  caller: Caller,
  ref: string,
  fields: Record<string, unknown> = {},
): Promise<BranchReply> {
  const reply = await caller.post(`/v1/projects/${ref}/branches`, {
    branch_name: `b-${crypto.randomUUID()}`,
    ...fields,
  })
  expect(reply).toMatchObject({ status: 201 })
  return reply.body
}

export async function untilBranch(
  caller: Caller,
  { parent_project_ref: parent, name }: Pick<BranchReply, 'parent_project_ref' | 'name'>,
  status: string,
  projectStatus = 'ACTIVE_HEALTHY',
): Promise<void> {
  await vi.waitFor(async () => {
    const { body } = await caller.get(`/v1/projects/${parent}/branches/${encodeURIComponent(name)}`)
    expect(body).toMatchObject({ status, preview_project_status: projectStatus })
  }, WAIT)
}

/** A branch that is ready to be used. */
export async function newBranch(
  caller: Caller,
  ref: string,
  fields: Record<string, unknown> = {},
): Promise<BranchReply> {
  const branch = await createBranch(caller, ref, fields)
  await untilBranch(caller, branch, 'FUNCTIONS_DEPLOYED')
  return branch
}

export interface RunReply {
  id: string
  branch_id: string
  run_steps: { name: string; status: string; created_at: string; updated_at: string }[]
}

export async function runOf(caller: Caller, ref: string, id: string): Promise<RunReply> {
  const reply = await caller.get(`/v1/projects/${ref}/actions/${id}`)
  expect(reply.status).toBe(200)
  return reply.body
}

const ENDED = ['EXITED', 'DEAD', 'CREATED']

/** Starts push, merge or reset and waits for its end; the statuses of its steps by name. */
export async function act(
  caller: Caller,
  { project_ref: ref }: Pick<BranchReply, 'project_ref'>,
  kind: 'push' | 'merge' | 'reset',
  body: Record<string, unknown> = {},
): Promise<Record<string, string>> {
  const reply = await caller.post(`/v1/branches/${ref}/${kind}`, body)
  expect(reply).toMatchObject({ status: 201, body: { message: 'ok' } })
  const { workflow_run_id: id } = reply.body
  return vi.waitFor(async () => {
    const { run_steps: steps } = await runOf(caller, ref, id)
    const begun = steps.some(({ status }) => status !== 'CREATED')
    const dead = steps.some(({ status }) => status === 'DEAD')
    const done = steps.every(({ status }) => status === 'EXITED')
    expect({ begun, over: (dead || done) && steps.every(({ status }) => ENDED.includes(status)) }).toEqual({
      begun: true,
      over: true,
    })
    return Object.fromEntries(steps.map(({ name, status }) => [name, status]))
  }, WAIT)
}

export const migrate = (caller: Caller, ref: string, query: string, name?: string): Promise<Reply> =>
  caller.post(`/v1/projects/${ref}/database/migrations`, { query, ...(name && { name }) })

export async function rows(caller: Caller, ref: string, query: string): Promise<unknown> {
  const reply = await runSql(caller, ref, query)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body
}

import { and, eq, isNull } from 'drizzle-orm'
import { expect } from 'vitest'
import { actionRuns, branches, projects } from '../../src/model/tables/index.ts'
import { type Caller, control, type Reply } from './api.ts'
import { runSql, until } from './projects.ts'

const timeoutMs = 60_000

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
  const wanted = { status, preview_project_status: projectStatus }
  await until(caller, {
    timeoutMs,
    inDatabase: async () => expect(await statusesOf(parent, name)).toEqual([wanted]),
    inApi: async () => {
      const { body } = await caller.get(`/v1/projects/${parent}/branches/${encodeURIComponent(name)}`)
      expect(body).toMatchObject(wanted)
    },
  })
}

const statusesOf = (parent: string, name: string) =>
  control
    .select({ status: branches.status, preview_project_status: projects.status })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .where(and(eq(branches.parentRef, parent), eq(branches.name, name), isNull(branches.removedAt)))

/** Makes a branch that can be used. */
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

/** Starts push, merge or reset and waits for its end; returns the statuses of its steps by name. */
export async function act(
  caller: Caller,
  { project_ref: ref }: Pick<BranchReply, 'project_ref'>,
  kind: 'push' | 'merge' | 'reset',
  body: Record<string, unknown> = {},
): Promise<Record<string, string>> {
  const reply = await caller.post(`/v1/branches/${ref}/${kind}`, body)
  expect(reply).toMatchObject({ status: 201, body: { message: 'ok' } })
  const { workflow_run_id: id } = reply.body
  await until(caller, {
    timeoutMs,
    async inDatabase() {
      const [run] = await control.select({ steps: actionRuns.steps }).from(actionRuns).where(eq(actionRuns.id, id))
      expectOver(run?.steps ?? [])
    },
    inApi: async () => expectOver((await runOf(caller, ref, id)).run_steps),
  })
  const { run_steps: steps } = await runOf(caller, ref, id)
  return Object.fromEntries(steps.map(({ name, status }) => [name, status]))
}

function expectOver(steps: { status: string }[]) {
  const begun = steps.some(({ status }) => status !== 'CREATED')
  const dead = steps.some(({ status }) => status === 'DEAD')
  const done = steps.every(({ status }) => status === 'EXITED')
  const over = (dead || done) && steps.every(({ status }) => ENDED.includes(status))
  expect({ begun, over }).toEqual({ begun: true, over: true })
}

export const migrate = (caller: Caller, ref: string, query: string, name?: string): Promise<Reply> =>
  caller.post(`/v1/projects/${ref}/database/migrations`, { query, ...(name && { name }) })

export async function rows(caller: Caller, ref: string, query: string): Promise<unknown> {
  const reply = await runSql(caller, ref, query)
  expect(reply, JSON.stringify(reply.body)).toMatchObject({ status: 201 })
  return reply.body
}

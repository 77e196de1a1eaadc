import { and, desc, eq, isNull, sql } from 'drizzle-orm'
import { Webhook } from 'standardwebhooks'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import {
  actionRuns,
  branches,
  heartbeats,
  projects,
  projectTasks,
  type StepStatus,
  webhookEndpoints,
} from '../../../src/model/tables/index.ts'
import { onHost } from '../../instances.ts'
import { type Caller, control, newApp, newOrganization, type Reply, tick, workerLogs } from '../../support/api.ts'
import { act, type BranchReply, createBranch, migrate, newBranch, rows, untilBranch } from '../../support/branches.ts'
import { deploy } from '../../support/deploys.ts'
import { extended } from '../../support/extended.ts'
import { newProject, untilStatus } from '../../support/projects.ts'
import { newReceiver, withStatus } from '../../support/receiver.ts'
import { bringForward, eventRowsOf, insertProject, rowsOf, untilStatuses, WAIT } from '../../support/webhooks.ts'

async function newParent() {
  const organization = await newOrganization()
  return { organization, owner: organization.owner, ref: await newProject(organization) }
}

async function newPair() {
  const parent = await newParent()
  return { ...parent, branch: await newBranch(parent.owner, parent.ref) }
}

type Transaction = Parameters<Parameters<typeof control.transaction>[0]>[0]

/** Starts requests during another transaction, which ends once each of them waits for a lock or is answered. */
async function during(change: (tx: Transaction) => Promise<unknown>, requests: readonly (() => Promise<Reply>)[]) {
  const { started } = await control.transaction(async (tx) => {
    await change(tx)
    const started: Promise<Reply>[] = []
    let answered = 0
    for (const request of requests) {
      started.push(request().finally(() => answered++))
      await vi.waitFor(async () => {
        const { rows } = await control.execute(sql`select count(*)::int as waiting from pg_stat_activity
          where wait_event_type = 'Lock' and datname = current_database()`)
        expect(Number(rows[0]?.waiting) + answered).toBeGreaterThanOrEqual(started.length)
      }, WAIT)
    }
    // The requests are not awaited here: they wait for the end of this transaction.
    return { started }
  })
  return Promise.all(started)
}

async function projectOf(ref: string) {
  const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
  return row
}

async function lastRun({ project_ref: ref }: BranchReply) {
  const where = eq(actionRuns.projectRef, ref)
  const [run] = await control.select().from(actionRuns).where(where).orderBy(desc(actionRuns.createdAt)).limit(1)
  if (!run?.taskId) throw new Error('no run')
  const [task] = await control.select().from(projectTasks).where(eq(projectTasks.id, run.taskId))
  return { ...run, taskId: run.taskId, task }
}

/** Sets a run to the state while its consumer works on it or, after the lease, has died. */
async function reopen(branch: BranchReply, leaseUntil: Date, status: StepStatus = 'RUNNING'): Promise<void> {
  const { id, taskId, steps } = await lastRun(branch)
  await control
    .update(projectTasks)
    .set({ state: 'running', claim: crypto.randomUUID(), leaseUntil, stepsDone: [], finishedAt: null })
    .where(eq(projectTasks.id, taskId))
  const open = steps.map((step) => ({ ...step, status }))
  await control.update(actionRuns).set({ steps: open }).where(eq(actionRuns.id, id))
}

/** Makes the next attempt the last one, and due at once. */
const lastAttempt = (taskId: string) =>
  control
    .update(projectTasks)
    .set({ attempts: 5, dueAt: new Date(0) })
    .where(and(eq(projectTasks.id, taskId), eq(projectTasks.state, 'pending')))

const typesOf = async (ref: string, part = '') =>
  (await eventRowsOf(ref)).map(({ type }) => type as string).filter((type) => type.includes(part))

const publishedStatuses = async (ref: string) =>
  (await eventRowsOf(ref)).flatMap(({ type, payload }) => {
    const { previous_status: previous, current_status: current } = payload as Record<string, string>
    return type === 'v1.project.status.changed' ? [`${previous} > ${current}`] : []
  })

describe('a branch that is being created', () => {
  it('is refused while its parent is being deleted, and nothing is left of it', async () => {
    const { owner, ref } = await newParent()
    const goingDown = (tx: Transaction) =>
      tx.update(projects).set({ status: 'GOING_DOWN' }).where(eq(projects.ref, ref))
    const attributes = { name: 'late' }
    const replies = await during(goingDown, [
      () => owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'late' }),
      () => owner.post(`/v2/projects/${ref}/branches`, { data: { type: 'branch', attributes } }),
      () => owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'late', is_default: true }),
    ])
    expect(replies.map(({ status }) => status)).toEqual([409, 409, 409])
    expect(await control.select().from(projects).where(eq(projects.parentRef, ref))).toEqual([])
    expect(await control.select().from(branches).where(eq(branches.parentRef, ref))).toEqual([])
  })

  it('stands for its parent as the default branch, so it has no size or secrets of its own', async () => {
    const { owner, ref } = await newParent()
    for (const own of [{ desired_instance_size: 'large' }, { secrets: { A: '1' } }]) {
      const fields = { branch_name: 'production', is_default: true, ...own }
      expect((await owner.post(`/v1/projects/${ref}/branches`, fields)).status).toBe(422)
    }
    const { body } = await owner.get(`/v1/projects/${ref}`)
    const size = (body as { infra_compute_size?: string }).infra_compute_size ?? 'nano'
    const fields = { branch_name: 'production', is_default: true, desired_instance_size: size, with_data: false }
    expect(await createBranch(owner, ref, fields)).toMatchObject({ persistent: true, with_data: true })
  })

  it('prevents a pause of its parent until it is ready', async () => {
    const { owner, ref } = await newParent()
    const branch = await createBranch(owner, ref)
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 409 })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 200 })
  })

  extended('keeps its row as long as its project if branching is disabled meanwhile', async () => {
    const { owner, ref, branch } = await newPair()
    const holding = (tx: Transaction) =>
      tx.select().from(branches).where(eq(branches.projectRef, branch.project_ref)).for('update')
    const [disabled, made] = await during(holding, [
      () => owner.delete(`/v1/projects/${ref}/branches`),
      () => owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'meanwhile' }),
    ])
    expect([disabled?.status, made?.status]).toEqual([200, 201])
    const rows = await control
      .select({ name: branches.name })
      .from(branches)
      .where(and(eq(branches.parentRef, ref), isNull(branches.removedAt)))
    expect(rows.map(({ name }) => name).sort()).toEqual(['main', 'meanwhile'])
    await untilBranch(owner, made?.body, 'FUNCTIONS_DEPLOYED')
  })
})

describe('a branch whose creation or reset failed after its database was there', () => {
  it('is completed by a push', async () => {
    const { owner, ref } = await newParent()
    await deploy(owner, ref)
    await rows(
      owner,
      ref,
      `insert into storage.buckets (id, name) values ('covers', 'covers');
      create function public.refuse() returns trigger language plpgsql as $$ begin raise 'no buckets'; end $$;
      create trigger refuse before insert on storage.buckets execute function public.refuse()`,
    )
    const branch = await createBranch(owner, ref)
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    const own = branch.project_ref
    const accept = () => rows(owner, own, 'drop trigger refuse on storage.buckets')
    const buckets = () => rows(owner, own, 'select id from storage.buckets')
    expect(await act(owner, branch, 'push')).toMatchObject({ seed: 'DEAD', deploy: 'CREATED' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    await accept()
    const steps = { pull: 'EXITED', health: 'EXITED', migrate: 'EXITED', deploy: 'EXITED' }
    expect(await act(owner, branch, 'push')).toEqual({ ...steps, configure: 'EXITED', seed: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await buckets()).toEqual([{ id: 'covers' }])
    expect((await owner.get(`/v1/projects/${own}/functions`)).body).toMatchObject([{ slug: 'hello' }])
    expect(await act(owner, branch, 'push')).toEqual(steps)
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')

    expect(await act(owner, branch, 'reset')).toMatchObject({ seed: 'DEAD' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    await accept()
    expect(await act(owner, branch, 'push')).toMatchObject({ seed: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await buckets()).toEqual([{ id: 'covers' }])
  })
})

describe('the default branch', () => {
  it('publishes its creation with the first other branch, and its end', async () => {
    const { owner, ref } = await newParent()
    await createBranch(owner, ref, { branch_name: 'one' })
    await createBranch(owner, ref, { branch_name: 'two' })
    const branchesOf = async (type: string) =>
      (await eventRowsOf(ref))
        .filter((event) => event.type === type)
        .map(({ payload }) => (payload as { branch: { name: string } }).branch)
    const main = { ref, name: 'main', git_branch: null, is_default: true, status: 'FUNCTIONS_DEPLOYED' }
    expect(await branchesOf('v1.project.branch.created')).toMatchObject([main, { name: 'one' }, { name: 'two' }])
    expect(await owner.delete(`/v1/projects/${ref}/branches`)).toMatchObject({ status: 200 })
    const removed = await branchesOf('v1.project.branch.removed')
    expect(removed.map(({ name }) => name).sort()).toEqual(['main', 'one', 'two'])
  })

  it.each([
    ['with branching', (ref: string) => `/v1/projects/${ref}/branches`],
    ['with its project', (ref: string) => `/v1/projects/${ref}`],
  ])('publishes its end %s, also to its notify_url', async (_, pathOf) => {
    const { owner, ref } = await newParent()
    const receiver = await newReceiver()
    await createBranch(owner, ref, { branch_name: 'production', is_default: true, notify_url: receiver.url })
    expect(await owner.delete(pathOf(ref))).toMatchObject({ status: 200 })
    expect(await typesOf(ref, 'branch.')).toEqual(['v1.project.branch.created', 'v1.project.branch.removed'])
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2), WAIT)
    const last = JSON.parse(receiver.received[1]?.body ?? '')
    expect(last).toMatchObject({
      type: 'v1.project.branch.removed',
      payload: { branch: { name: 'production', is_default: true, ref } },
    })
    const [row] = await control.select().from(branches).where(eq(branches.parentRef, ref))
    expect(row?.removedAt).toEqual(expect.any(Date))
  })
})

describe('a merge whose branch is deleted', () => {
  it('ends with the project of the branch, so that the parent waits for nothing', async () => {
    const { owner, ref, branch } = await newPair()
    await act(owner, branch, 'merge')
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await reopen(branch, new Date(Date.now() + 3_600_000))
    expect(await owner.delete(`/v1/projects/${branch.project_ref}`)).toMatchObject({ status: 200 })
    const { steps, task } = await lastRun(branch)
    expect(task).toMatchObject({ state: 'canceled', claim: null })
    expect(new Set(steps.map(({ status }) => status))).toEqual(new Set(['DEAD']))
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 200 })
    await untilStatus(owner, ref, 'INACTIVE')
  })

  it('fails at its next step with a reason if the deletion was not noticed', async () => {
    const { owner, ref, branch } = await newPair()
    await act(owner, branch, 'merge')
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await reopen(branch, new Date(0), 'CREATED')
    await control.update(branches).set({ removedAt: new Date() }).where(eq(branches.id, branch.id))
    await tick()
    await vi.waitFor(async () => expect((await lastRun(branch)).task?.state).toBe('failed'), WAIT)
    const { steps, task } = await lastRun(branch)
    expect(task?.lastError).toContain('the branch is gone')
    expect(new Set(steps.map(({ status }) => status))).toEqual(new Set(['DEAD']))
    expect(await owner.post(`/v1/projects/${ref}/pause`)).toMatchObject({ status: 200 })
  })
})

describe('a reset that fails before it removes anything', () => {
  let pair: Awaited<ReturnType<typeof newPair>>
  beforeAll(async () => {
    pair = await newPair()
    await migrate(pair.owner, pair.branch.project_ref, 'create table own (n int)')
    await rows(pair.owner, pair.branch.project_ref, 'create table by_hand (n int); insert into by_hand values (1)')
  })

  it.each([
    ['its history could not be read', ({ branch }: typeof pair) => branch.project_ref],
    ['its parent could not be copied', ({ ref }: typeof pair) => ref],
  ])('leaves the branch in service when %s', async (_, goneOf) => {
    const { owner, branch } = pair
    const gone = goneOf(pair)
    await onHost(gone, 'pause')
    expect(await owner.post(`/v1/branches/${branch.id}/reset`, {})).toMatchObject({ status: 201 })
    const { taskId } = await lastRun(branch)
    await vi.waitFor(async () => {
      await lastAttempt(taskId)
      await tick()
      expect((await lastRun(branch)).task?.state).toBe('failed')
    }, WAIT)
    await onHost(gone, 'resume')
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    expect((await lastRun(branch)).steps).toMatchObject([{ name: 'clone', status: 'DEAD' }, ...Array(6).fill({})])
    expect(await rows(owner, branch.project_ref, 'select n from by_hand')).toEqual([{ n: 1 }])
  })

  it('can be repeated', async () => {
    const { owner, branch } = pair
    expect(await act(owner, branch, 'reset')).toMatchObject({ clone: 'EXITED', migrate: 'EXITED', deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, branch.project_ref, 'select n from own')).toEqual([])
  })

  it('leaves the branch out of service if it was so before', async () => {
    const { owner, branch } = pair
    const where = eq(projects.ref, branch.project_ref)
    await control.update(projects).set({ status: 'RESTORE_FAILED' }).where(where)
    await act(owner, branch, 'reset', { migration_version: '20000101000000' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED', 'RESTORE_FAILED')
    await control.update(projects).set({ status: 'ACTIVE_HEALTHY' }).where(where)
  })
})

describe('the status of a branch', () => {
  extended('is published when it is reset and when it is deleted', async () => {
    const { owner, branch } = await newPair()
    const own = branch.project_ref
    await control.update(projects).set({ status: 'ACTIVE_UNHEALTHY' }).where(eq(projects.ref, own))
    await act(owner, branch, 'reset')
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await owner.delete(`/v1/branches/${branch.id}`)).toMatchObject({ status: 200 })
    await vi.waitFor(async () => expect((await projectOf(own))?.removedAt).toEqual(expect.any(Date)), WAIT)
    expect(await publishedStatuses(own)).toEqual([
      'COMING_UP > ACTIVE_HEALTHY',
      'ACTIVE_UNHEALTHY > RESTORING',
      'RESTORING > ACTIVE_HEALTHY',
      'ACTIVE_HEALTHY > GOING_DOWN',
      'GOING_DOWN > REMOVED',
    ])
  })
})

describe('the URL to notify', () => {
  const endpointOf = async ({ id }: BranchReply) => {
    const [row] = await control.select().from(webhookEndpoints).where(eq(webhookEndpoints.branchId, id))
    if (!row) throw new Error('no endpoint')
    return row
  }

  it('may be changed, or set again, and no pending notification is lost', async () => {
    const { owner, ref } = await newParent()
    const down = await newReceiver(withStatus(503))
    const fields = { branch_name: 'production', is_default: true, notify_url: down.url }
    const branch = await createBranch(owner, ref, fields)
    const { id } = await endpointOf(branch)
    await untilStatuses(id, 'failure', 'pending')

    const patch = (url: string) => owner.patch(`/v1/branches/${branch.id}`, { notify_url: url })
    expect(await patch(down.url)).toMatchObject({ status: 200 })
    expect(await endpointOf(branch)).toMatchObject({ id, url: down.url })
    const up = await newReceiver()
    expect(await patch(up.url)).toMatchObject({ status: 200, body: { notify_url: up.url } })
    expect(await endpointOf(branch)).toMatchObject({ id, url: up.url })
    const notified = () => up.received.map(({ body }) => JSON.parse(body).type.split('.').at(-1))
    await vi.waitFor(async () => {
      await bringForward(id)
      expect(notified().sort()).toEqual(['created', 'updated', 'updated'])
    }, WAIT)
  })

  it.each([null, ''])('is removed by %j, with its pending notifications, and may be set again', async (none) => {
    const { owner, ref } = await newParent()
    const down = await newReceiver(withStatus(503))
    const fields = { branch_name: 'production', is_default: true, notify_url: down.url }
    const branch = await createBranch(owner, ref, fields)
    const { id } = await endpointOf(branch)
    await untilStatuses(id, 'failure', 'pending')

    const patch = (notify_url: unknown) => owner.patch(`/v1/branches/${branch.id}`, { notify_url })
    const removed = await patch(none)
    expect([removed.status, 'notify_url' in removed.body]).toEqual([200, false])
    expect('notify_url' in (await owner.get(`/v1/projects/${ref}/branches/production`)).body).toBe(false)
    await untilStatuses(id, 'failure', 'skipped')
    expect(await patch(none)).toMatchObject({ status: 200 })
    const up = await newReceiver()
    expect(await patch(up.url)).toMatchObject({ status: 200, body: { notify_url: up.url } })
    await untilStatuses(id, 'failure', 'skipped', 'success')
    expect([down.received.length, up.received.length]).toEqual([1, 1])
  })

  it('is set on a branch that has none', async () => {
    const { owner, branch } = await newPair()
    const receiver = await newReceiver()
    const patched = await owner.patch(`/v1/branches/${branch.id}`, { notify_url: receiver.url })
    expect(patched).toMatchObject({ status: 200 })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), WAIT)
  })

  it('is signed with a JWT secret that an old project without one gets with it', async () => {
    const { owner, ref } = await newParent()
    await control.update(projects).set({ sealedJwtSecret: null }).where(eq(projects.ref, ref))
    const receiver = await newReceiver()
    await createBranch(owner, ref, { is_default: true, branch_name: 'production', notify_url: receiver.url })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), WAIT)
    const { jwt_secret: secret } = (await owner.get(`/v1/branches/${ref}`)).body
    const [{ body, headers }] = receiver.received as [(typeof receiver.received)[0]]
    expect(() => new Webhook(secret, { format: 'raw' }).verify(body, headers as Record<string, string>)).not.toThrow()
  })

  extended('is deleted a day after the branch, once an hour, with its deliveries', async () => {
    const { owner, ref } = await newParent()
    const receiver = await newReceiver()
    const fields = { is_default: true, notify_url: receiver.url }
    const branch = await createBranch(owner, ref, fields)
    const { id } = await endpointOf(branch)
    const removed = (hoursAgo: number) =>
      control
        .update(branches)
        .set({ removedAt: new Date(Date.now() - hoursAgo * 3_600_000) })
        .where(eq(branches.id, branch.id))
    await removed(23)
    await purge()
    expect(await endpointOf(branch)).toMatchObject({ id })
    await removed(25)
    await tick()
    expect(await endpointOf(branch)).toMatchObject({ id })
    await purge()
    await vi.waitFor(async () => expect(endpointOf(branch)).rejects.toThrow('no endpoint'), WAIT)
    expect(await rowsOf(id)).toEqual([])
    await vi.waitFor(async () => expect((await workerLogs(id)).join()).toContain('webhook_sender_removed'), WAIT)
  })
})

/** Runs the purge as if the last one were long ago. */
async function purge(): Promise<void> {
  await control.delete(heartbeats).where(eq(heartbeats.name, 'webhook_endpoints'))
  await tick()
}

describe('the webhook endpoints of a removed project', () => {
  it('are deleted after 14 days', async () => {
    const organization = await newOrganization()
    const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000)
    const [gone, recent, staying] = [
      await insertProject(organization, { status: 'REMOVED', removedAt: daysAgo(15) }),
      await insertProject(organization, { status: 'REMOVED', removedAt: daysAgo(13) }),
      await insertProject(organization),
    ]
    const row = { organizationId: organization.id, url: 'http://127.0.0.1:9/', enabled: false, eventTypes: [] }
    await control.insert(webhookEndpoints).values(
      [gone, recent, staying].map((projectRef) => ({
        ...{ ...row, projectRef, sealedSecret: '', createdBy: organization.userId, createdAt: new Date() },
      })),
    )
    await purge()
    await vi.waitFor(async () => {
      const left = await control
        .select({ ref: webhookEndpoints.projectRef })
        .from(webhookEndpoints)
        .where(eq(webhookEndpoints.organizationId, organization.id))
      expect(left.map(({ ref }) => ref).sort()).toEqual([recent, staying].sort())
    }, WAIT)
  })
})

describe('the password of a branch', () => {
  it('is for tokens that may read secrets, whatever the role allows', async () => {
    const { organization, branch } = await newPair()
    const path = `/v1/branches/${branch.project_ref}`
    const shownTo = async (caller: Caller) => {
      const reply = await caller.get(path)
      expect(reply).toMatchObject({ status: 200, body: { ref: branch.project_ref, db_user: expect.any(String) } })
      return ['db_pass', 'jwt_secret'].filter((field) => field in reply.body)
    }
    const [without, all] = await Promise.all([
      newApp(organization, ['environment:read']),
      newApp(organization, ['environment:read', 'secrets:read']),
    ])
    expect(await shownTo(without.caller)).toEqual([])
    expect(await shownTo(all.caller)).toEqual(['db_pass', 'jwt_secret'])
  })
})

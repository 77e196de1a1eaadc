import { and, desc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { auditLog, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { askHost } from '../../instances.ts'
import { control, newOrganization, type TestOrganization, tick, workerLogs } from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { extended } from '../../support/extended.ts'
import { createProject, newProject, runSql, untilGone, untilStatus } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

const WAIT = { timeout: WAIT_MS }

type Task = typeof projectTasks.$inferSelect
type Status = (typeof projects.$inferSelect)['status']

const lastTask = async (ref: string): Promise<Task> => {
  const [task] = await control
    .select()
    .from(projectTasks)
    .where(eq(projectTasks.projectRef, ref))
    .orderBy(desc(projectTasks.createdAt))
  if (!task) throw new Error('no task')
  return task
}

/** Leaves a task as a consumer that died some time ago in the middle of its work. */
async function abandon(ref: string, during: Status, fields: Partial<Task>): Promise<Task> {
  const { id } = await lastTask(ref)
  const died = { state: 'running' as const, claim: crypto.randomUUID(), leaseUntil: new Date(0), finishedAt: null }
  const [task] = await control
    .update(projectTasks)
    .set({ ...died, ...fields })
    .where(eq(projectTasks.id, id))
    .returning()
  await control.update(projects).set({ status: during, removedAt: null }).where(eq(projects.ref, ref))
  return task as Task
}

/** One project for the tests that repeat a creation. */
let organization: TestOrganization
let created: string
beforeAll(async () => {
  organization = await newOrganization()
  created = await newProject(organization)
  await runSql(organization.owner, created, 'create table kept (n int); insert into kept values (1)')
})

describe('a task whose consumer died', () => {
  it.each([[[]], [['create_database']], [['create_database', 'check_health']]])(
    'continues the creation of the project after the steps %j, without harm to existing data',
    async (stepsDone) => {
      await abandon(created, 'COMING_UP', { stepsDone })
      await tick()
      await untilStatus(organization.owner, created, 'ACTIVE_HEALTHY')
      expect((await runSql(organization.owner, created, 'select n from kept')).body).toEqual([{ n: 1 }])
      expect((await lastTask(created)).stepsDone).toEqual(['create_database', 'check_health'])
    },
  )

  it('does not take a database for prepared whose plan has changed while it was created', async () => {
    const hour = 3_600_000
    const { id } = await abandon(created, 'COMING_UP', { stepsDone: [], leaseUntil: new Date(Date.now() + hour) })
    const ofProject = eq(projects.ref, created)
    await control.transaction(async (tx) => {
      // Later, so that no tick prepares it at once.
      await tx
        .update(projects)
        .set({ preparation: '', preparationDueAt: new Date(Date.now() + hour) })
        .where(ofProject)
      await untilBlocked(tx, async () => {
        await control
          .update(projectTasks)
          .set({ leaseUntil: new Date(0) })
          .where(eq(projectTasks.id, id))
        await tick()
      })
    })
    await untilStatus(organization.owner, created, 'ACTIVE_HEALTHY')
    const [project] = await control.select({ preparation: projects.preparation }).from(projects).where(ofProject)
    expect(project).toEqual({ preparation: '' })
  })

  it('continues pausing, restoring and deleting', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    for (const [change, during, after] of [
      ['pause', 'PAUSING', 'INACTIVE'],
      ['restore', 'RESTORING', 'ACTIVE_HEALTHY'],
    ] as const) {
      await owner.post(`/v1/projects/${ref}/${change}`)
      await untilStatus(owner, ref, after)
      await abandon(ref, during, { stepsDone: [] })
      await tick()
      await untilStatus(owner, ref, after)
    }
    await owner.delete(`/v1/projects/${ref}`)
    await untilGone(owner, ref)
    await abandon(ref, 'GOING_DOWN', { stepsDone: [] })
    await tick()
    await untilGone(owner, ref)
  })

  extended('is not taken over while the lease is valid', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { claim } = await abandon(ref, 'COMING_UP', { stepsDone: [], leaseUntil: new Date(Date.now() + 60_000) })
    await tick()
    await untilTickDone()
    expect(await lastTask(ref)).toMatchObject({ state: 'running', claim })
  })

  it('fails with the reason after the last attempt', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    await control.update(projects).set({ sealedPassword: 'k1.AAAA' }).where(eq(projects.ref, ref))
    await abandon(ref, 'COMING_UP', { stepsDone: [], attempts: 5 })
    await tick()
    await untilStatus(organization.owner, ref, 'INIT_FAILED')
    const [project] = await control.select().from(projects).where(eq(projects.ref, ref))
    expect(project?.statusReason).toMatch(/^create: /)
    const [logged = ''] = (await workerLogs(ref)).filter((line) => line.includes('"to":"INIT_FAILED"'))
    const reason = project?.statusReason?.replace('create: ', '')
    expect(JSON.parse(logged)).toMatchObject({ event: 'project_status_changed', project: ref, reason })
    expect((await organization.owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
    await untilGone(organization.owner, ref)
  })
})

/** Waits for another task that the same tick sent; then the tick has sent everything. */
async function untilTickDone() {
  const organization = await newOrganization()
  const ref = await newProject(organization)
  await abandon(ref, 'COMING_UP', { stepsDone: [] })
  await tick()
  await untilStatus(organization.owner, ref, 'ACTIVE_HEALTHY')
}

describe('a task whose message was lost', () => {
  it('is sent again by the sweeper', async () => {
    await abandon(created, 'COMING_UP', {
      state: 'pending',
      claim: null,
      leaseUntil: null,
      stepsDone: [],
      dueAt: new Date(0),
    })
    await tick()
    await untilStatus(organization.owner, created, 'ACTIVE_HEALTHY')
  })
})

describe('a task', () => {
  extended('waits for another operation as long as that takes, and counts no attempt', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    const { lock } = await askHost<{ lock: string }>('POST', `/instances/${ref}/lock`, { wait_ms: 0 })
    const renewal = setInterval(() => askHost('PUT', `/instances/${ref}/lock/${lock}`), 2_000)
    await owner.post(`/v1/projects/${ref}/pause`)
    const lastError = expect.stringContaining('Another operation is running on the instance')
    await vi.waitFor(async () => expect(await lastTask(ref)).toMatchObject({ attempts: 0, lastError }), WAIT)
    clearInterval(renewal)
    await askHost('DELETE', `/instances/${ref}/lock/${lock}`)
    await untilStatus(owner, ref, 'INACTIVE')
    expect(await lastTask(ref)).toMatchObject({ attempts: 1, state: 'done' })
  })
})

describe('a change of settings', () => {
  extended('waits a minute for another operation, and is then refused', async () => {
    const { owner } = organization
    const ref = await newProject(organization)
    const { lock } = await askHost<{ lock: string }>('POST', `/instances/${ref}/lock`, { wait_ms: 0 })
    const renewal = setInterval(() => askHost('PUT', `/instances/${ref}/lock/${lock}`), 2_000)
    const reply = await owner.patch(`/v1/projects/${ref}/config/database/postgres`, { work_mem: '3MB' })
    clearInterval(renewal)
    await askHost('DELETE', `/instances/${ref}/lock/${lock}`)
    const message = expect.stringContaining('another operation on it is still running')
    expect(reply).toMatchObject({ status: 409, body: { message } })
  })
})

describe('the cancellation of a restore', () => {
  it('leaves the project paused', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    await owner.post(`/v1/projects/${ref}/restore`)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    await abandon(ref, 'RESTORING', { stepsDone: ['open_database'], leaseUntil: new Date(Date.now() + 60_000) })

    expect(await owner.post(`/v1/projects/${ref}/restore/cancel`)).toMatchObject({ status: 200, body: '' })
    await untilStatus(owner, ref, 'INACTIVE')
    await tick()
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('INACTIVE')
  })

  extended('is not undone by the consumer of the restore when that resumes later', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')

    // The holder of the project's lock delays every operation of the engine on it.
    const { lock } = await askHost<{ lock: string }>('POST', `/instances/${ref}/lock`, { wait_ms: 0 })
    await owner.post(`/v1/projects/${ref}/restore`)
    await vi.waitFor(async () => expect(await lastTask(ref)).toMatchObject({ kind: 'restore', state: 'running' }), WAIT)
    expect((await owner.post(`/v1/projects/${ref}/restore/cancel`)).status).toBe(200)
    // Without the pause that the cancel starts, only the fence can keep the database closed.
    await control
      .delete(projectTasks)
      .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, 'pause'), eq(projectTasks.state, 'pending')))
    await askHost('DELETE', `/instances/${ref}/lock/${lock}`)
    await untilTickDone()
    expect(await askHost('GET', `/instances/${ref}`)).toMatchObject({ state: 'paused' })
  })

  it('is refused if no restore runs', async () => {
    const organization = await newOrganization()
    const ref = await createProject(organization)
    expect((await organization.owner.post(`/v1/projects/${ref}/restore/cancel`)).status).toBe(409)
  })
})

describe('the deletion of a project that is being created', () => {
  it('is refused until the project is ready', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    await abandon(ref, 'COMING_UP', { stepsDone: [], leaseUntil: new Date(Date.now() + 60_000) })
    expect(await organization.owner.delete(`/v1/projects/${ref}`)).toMatchObject({
      status: 400,
      body: { message: 'Project not ready for deletion.' },
    })
  })
})

describe('the audit log', () => {
  it('names the actor and the action, in order', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const rows = await vi.waitFor(
      async () => {
        const rows = await control
          .select()
          .from(auditLog)
          .where(eq(auditLog.projectRef, ref))
          .orderBy(auditLog.createdAt)
        expect(rows.map(({ action }) => action)).toEqual(['project.create', 'project.create.done'])
        return rows
      },
      { timeout: WAIT_MS },
    )
    expect(rows[0]).toMatchObject({ actorUserId: organization.userId, organizationId: organization.id })
    expect(rows[1]).toMatchObject({ actorUserId: null, detail: { status: 'ACTIVE_HEALTHY' } })
  })
})

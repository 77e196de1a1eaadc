import { randomUUID } from 'node:crypto'
import { and, eq } from 'drizzle-orm'
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { type ControlDb, seedOwner } from '../../dev/seed.ts'
import { EngineUnavailable } from '../../src/engine/engine-errors.ts'
import {
  accessTokens,
  auditLog,
  memberRoles,
  organizations,
  projects,
  projectTasks,
  users,
  webhookEndpoints,
  workers,
  workerTasks,
} from '../../src/model/tables/index.ts'
import { describeError } from '../../src/platform/http/log.ts'
import { admin, adminReport } from '../support/admin.ts'
import { control, newApp, newOrganization, type TestOrganization, tick } from '../support/api.ts'
import { newBranch } from '../support/branches.ts'
import { newProject, untilGone, untilStatus } from '../support/projects.ts'
import { WAIT_MS } from '../support/wait.ts'
import { eventRowsOf, insertProject, newEndpoint, newPlace } from '../support/webhooks.ts'

const refused = (line: string) => {
  const args = line.split(' ')
  return expect((async () => admin(...args))()).rejects
}

const actionsOf = async (organization: TestOrganization) =>
  (await control.select().from(auditLog).where(eq(auditLog.organizationId, organization.id))).map(
    ({ action }) => action,
  )

async function insertTask(projectRef: string, fields: Partial<typeof projectTasks.$inferInsert> = {}) {
  // The task is due far in the future, so that no sweep runs it.
  const dueAt = new Date(Date.now() + 3_600_000)
  const [task] = await control
    .insert(projectTasks)
    .values({ projectRef, kind: 'backup', dueAt, ...fields })
    .returning()
  if (!task) throw new Error('no task')
  onTestFinished(async () => void (await control.delete(projectTasks).where(eq(projectTasks.id, task.id))))
  return task
}

const taskRow = async (id: string) => (await control.select().from(projectTasks).where(eq(projectTasks.id, id)))[0]

/** Sweeps until the project's tasks have begun: a sweep leaves those alone that were queued within the last 5 s. */
const untilTasksBegin = (ref: string) =>
  vi.waitFor(
    async () => {
      await tick()
      const waiting = and(
        eq(projectTasks.projectRef, ref),
        eq(projectTasks.state, 'pending'),
        eq(projectTasks.attempts, 0),
      )
      expect(await control.$count(projectTasks, waiting)).toBe(0)
    },
    { timeout: WAIT_MS, interval: 1_000 },
  )

describe('user list and organization list', () => {
  it('show users and organizations, and which are disabled', async () => {
    const { userId, slug, id } = await newOrganization()
    const [user] = await control.select().from(users).where(eq(users.id, userId))
    await control.update(organizations).set({ name: 'Listed', plan: 'team' }).where(eq(organizations.id, id))
    await insertProject({ id })
    const line = `${userId}  ${user?.username}  ${user?.primaryEmail}`
    expect((await admin('user', 'list')).split('\n')).toContain(line)
    expect((await admin('organization', 'list')).split('\n')).toContain(`${slug}  team  1 projects  Listed`)
    await admin('user', 'disable', String(user?.username))
    await admin('organization', 'disable', slug)
    expect((await admin('user', 'list')).split('\n')).toContain(`${line}  disabled`)
    expect((await admin('organization', 'list')).split('\n')).toContain(`${slug}  team  1 projects  Listed  disabled`)
  })
})

describe('organization delete', () => {
  it('removes members, applications and webhooks, keeps the slug and leaves a trace', async () => {
    const organization = await newOrganization()
    const { id, slug, owner } = organization
    await insertProject(organization, { status: 'REMOVED', removedAt: new Date() })
    await newApp(organization, ['projects:read'])
    await newEndpoint(await newPlace('organizations', organization))
    expect((await owner.get(`/v1/organizations/${slug}`)).status).toBe(200)

    await refused(`organization delete ${slug}`).toThrow(
      /^organization delete .* deletes the organization .*: add --yes to confirm\.$/,
    )
    expect(await control.$count(memberRoles, eq(memberRoles.organizationId, id))).toBe(1)
    expect(await admin('organization', 'delete', slug, '--yes')).toBe(
      `${slug} is deleted; the API refuses its members within ten seconds`,
    )
    for (const table of [memberRoles, accessTokens, webhookEndpoints]) {
      expect(await control.$count(table, eq(table.organizationId, id))).toBe(0)
    }
    await vi.waitFor(async () => expect((await owner.get(`/v1/organizations/${slug}`)).status).toBe(404), {
      timeout: WAIT_MS,
      interval: 500,
    })
    expect(await admin('organization', 'list')).not.toContain(slug)
    await refused(`organization delete ${slug} --yes`).toThrow(`no organization has the slug "${slug}"`)
    await refused(`member set ${slug} x owner`).toThrow(`no organization has the slug "${slug}"`)
    expect(await actionsOf(organization)).toContain('organization.delete')
  })

  it('is refused while there are projects, and names them', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    await refused(`organization delete ${organization.slug} --yes`).toThrow(
      `${organization.slug} has projects: delete them first with \`project delete\` (${ref})`,
    )
    expect(await control.$count(memberRoles, eq(memberRoles.organizationId, organization.id))).toBe(1)
    await refused('organization delete nowhere --yes').toThrow('no organization has the slug "nowhere"')
  })

  it('lets a start create its own organization again', async () => {
    const slug = `start-${randomUUID()}`
    const owner = {
      username: slug,
      email: `${slug}@example.com`,
      organization: { slug, name: 'Of the start' },
      plan: 'enterprise' as const,
    }
    const controlUrl = inject('controlUrl')
    await seedOwner({ controlUrl }, owner)
    await admin('organization', 'delete', slug, '--yes')
    expect(await admin('organization', 'list')).not.toContain(slug)
    await seedOwner({ controlUrl }, owner)
    expect(await admin('organization', 'list')).toContain(slug)
    expect(await admin('project', 'list', slug)).toBe('no projects')
  })
})

describe('project pause and project delete', () => {
  it('do what their endpoints do, also for branches, without an actor', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const ref = await newProject(organization)
    const branch = await newBranch(owner, ref)
    expect(await admin('project', 'pause', ref)).toBe(`${ref} is pausing; the API begins within a minute`)
    await refused(`project pause ${ref}`).toThrow(/its status is PAUSING, not ACTIVE_HEALTHY/)
    await untilTasksBegin(ref)
    await untilStatus(owner, ref, 'INACTIVE')
    expect(await eventRowsOf(ref)).toContainEqual(
      expect.objectContaining({ type: 'v1.project.paused', payload: expect.objectContaining({ actor: null }) }),
    )

    await refused(`project delete ${ref}`).toThrow(/^project delete .* deletes the project .*: add --yes to confirm\.$/)
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('INACTIVE')
    await admin('project', 'delete', ref, '--yes')
    await untilTasksBegin(ref)
    await untilGone(owner, ref)
    await untilGone(owner, branch.project_ref)
    expect(await actionsOf(organization)).toEqual(expect.arrayContaining(['project.pause', 'project.delete']))
  })

  it.each(['project pause', 'project delete --yes'])('name an unknown ref: %s', async (line) => {
    const [noun = '', verb = '', ...options] = line.split(' ')
    await refused([noun, verb, 'nowhere', ...options].join(' ')).toThrow('no project has the ref "nowhere"')
  })
})

describe('task list', () => {
  it('shows open and failed tasks, or those with one status', async () => {
    const ref = await insertProject(await newOrganization())
    const pending = await insertTask(ref, { attempts: 2, lastError: 'the host does not answer' })
    const failed = await insertTask(ref, { kind: 'pause', state: 'failed', createdAt: new Date(0) })
    const done = await insertTask(ref, { kind: 'restart', state: 'done' })
    expect(await admin('task', 'list', '--project', ref)).toBe(
      [
        `${pending.id}  ${pending.createdAt.toISOString()}  pending  backup  ${ref}  attempt 2  the host does not answer`,
        `${failed.id}  1970-01-01T00:00:00.000Z  failed  pause  ${ref}  attempt 0`,
      ].join('\n'),
    )
    expect(await admin('task', 'list', '--project', ref, '--status', 'done')).toMatch(new RegExp(`^${done.id} [^\n]*$`))
    expect(await admin('task', 'list', '--project', ref, '--status', 'canceled')).toBe('no tasks')
    expect(await admin('task', 'list', '--status', 'done')).toContain(done.id)
  })

  it('shows the messages of an error and its cause in one line, without their stacks', async () => {
    const ref = await insertProject(await newOrganization())
    const cause = new TypeError('fetch failed:\n  refused')
    const lastError = describeError(new EngineUnavailable('the host does not answer', { cause }))
    expect(lastError).toContain('\n    at ')
    await insertTask(ref, { lastError })
    expect(await admin('task', 'list', '--project', ref)).toMatch(
      / {2}attempt 0 {2}the host does not answer <- fetch failed: refused$/,
    )
  })

  it('refuses an unknown status and an unknown project', async () => {
    await refused('task list --status broken').toThrow(
      '--status broken is not one of pending, running, done, failed, canceled',
    )
    await refused('task list --project nowhere').toThrow('no project has the ref "nowhere"')
  })
})

describe('task retry', () => {
  it('runs a waiting task now, with a full number of attempts', async () => {
    const ref = await insertProject(await newOrganization())
    const { id } = await insertTask(ref, { attempts: 5 })
    expect(await admin('task', 'retry', id)).toBe(`${id} (backup) runs within a minute`)
    expect((await taskRow(id))?.dueAt.getTime()).toBeLessThan(Date.now())
    await untilTasksBegin(ref)
    await vi.waitFor(
      async () => expect(await taskRow(id)).toMatchObject({ attempts: 1, lastError: expect.any(String) }),
      {
        timeout: WAIT_MS,
      },
    )
  })

  it('starts a failed pause again, as a new task', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    await control
      .update(projects)
      .set({ status: 'PAUSE_FAILED', statusReason: 'pause: the host did not answer' })
      .where(eq(projects.ref, ref))
    const { id } = await insertTask(ref, { kind: 'pause', state: 'failed', attempts: 6 })
    const text = await admin('task', 'retry', id)
    expect(text).toMatch(/^[0-9a-f-]{36} \(pause\) runs within a minute$/)
    expect(text).not.toContain(id)
    await untilTasksBegin(ref)
    await untilStatus(organization.owner, ref, 'INACTIVE')
    await refused(`task retry ${id}`).toThrow(`${ref} has changed since: its status is INACTIVE`)
    expect(await actionsOf(organization)).toContain('task.retry')
  })

  it('refuses a task that cannot be retried', async () => {
    const ref = await insertProject(await newOrganization())
    const done = await insertTask(ref, { state: 'done' })
    const failed = await insertTask(ref, { state: 'failed' })
    await refused(`task retry ${done.id}`).toThrow('is done: only a pending or failed task can be retried')
    await refused(`task retry ${failed.id}`).toThrow('a failed backup cannot be retried from here: call its endpoint')
    const move = await insertTask(ref, { kind: 'move', state: 'failed' })
    await refused(`task retry ${move.id}`).toThrow('start it again with `project move`')
    await refused('task retry 7').toThrow('"7" is not the id of a task: see `task list`')
    const unknown = randomUUID()
    await refused(`task retry ${unknown}`).toThrow(`no task has the id "${unknown}"`)
  })
})

describe('status', () => {
  it('shows counts, and no problem of the queue after a heartbeat', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    await insertProject(organization, { parentRef: ref, status: 'PAUSING' })
    await tick()
    await vi.waitFor(async () => expect(await admin('status')).not.toContain('heartbeat'), { timeout: WAIT_MS })
    const text = await admin('status')
    expect(text).toMatch(/^organizations {2}[1-9]\d*\nusers {10}[1-9]\d*\nprojects {7}[1-9]\d*: /)
    expect(text).toMatch(/\nbranches {7}[1-9]\d*: .*\nhosts {10}.*\nencryption {5}.*\nopen tasks /)
    expect(text).toMatch(/\ndatabase {7}[\d.]+ MiB; [1-9]\d* of \d+ connections\nobjects {8}[\d.]+ MiB/)
  })

  it('counts the failed tasks of projects and of workers of the last day', async () => {
    const projectRef = await insertProject(await newOrganization())
    const [at, dayBefore] = [new Date(), new Date(Date.now() - 25 * 3_600_000)]
    const spec = { runtime: 'node', size: '2gb', exposure: 'public', instances: 1 } as const
    const rolledBack = new Error('rolled back')
    // The snapshot does not contain the tasks of other tests.
    const report = control.transaction(
      async (tx) => {
        const count = async () => {
          const { text } = await readCommand(['status'])(tx as unknown as ControlDb)
          return Number(/failed tasks {3}(\d+) in the last 24 hours/.exec(text)?.[1])
        }
        const before = await count()
        const worker = { projectRef, name: 'w', spec, buildState: 'failed', createdAt: at, updatedAt: at } as const
        const [{ id: workerId } = { id: '' }] = await tx.insert(workers).values(worker).returning()
        const task = { workerId, kind: 'build', spec, state: 'failed', dueAt: at, createdAt: at } as const
        await tx.insert(workerTasks).values([at, dayBefore].map((finishedAt) => ({ ...task, finishedAt })))
        const ofProject = { projectRef, kind: 'backup', state: 'failed', dueAt: at, finishedAt: at } as const
        await tx.insert(projectTasks).values(ofProject)
        expect(await count()).toBe(before + 2)
        throw rolledBack
      },
      { isolationLevel: 'repeatable read' },
    )
    await expect(report).rejects.toBe(rolledBack)
  })

  it('names the hosts, and those that do not answer, with exit code 1', async () => {
    onTestFinished(() => void vi.unstubAllEnvs())
    const { url, key } = inject('host')
    vi.stubEnv('HOST_URL', url)
    vi.stubEnv('HOST_KEY', key)
    const { text } = await adminReport('status')
    expect(text).toContain('\nhosts          local\n')
    expect(text).not.toContain(`local at ${url}`)
    vi.stubEnv('HOST_KEY', 'another')
    const refused = await adminReport('status')
    expect(refused.text).toMatch(/\nPROBLEM {8}local at http:[^\n]+: \S/)
    expect(refused.exitCode).toBe(1)
    vi.stubEnv('HOST_URL', '')
    vi.stubEnv('PILOTHOUSE_DATA', '/nonexistent')
    const unchecked = await adminReport('status')
    expect(unchecked.text).toMatch(/\nhosts {10}not checked\n[\s\S]*\nPROBLEM {8}the hosts cannot be asked: \S/)
    expect(unchecked.exitCode).toBe(1)
    vi.stubEnv('HOST_URL', 'http://127.0.0.1:9')
    expect((await adminReport('status')).text).toContain(
      'local at http://127.0.0.1:9: the database host does not answer',
    )
    await newProject(await newOrganization())
    vi.stubEnv('HOST_URL', '')
    vi.stubEnv('DATABASE_URL', 'postgresql://127.0.0.1/x')
    vi.stubEnv('ENCRYPTION_KEY', inject('encryptionKey'))
    const unknown = await adminReport('status')
    expect(unknown.text).toContain('\nPROBLEM        the host local is not known here: set HOST_URL and HOST_KEY')
    expect(unknown.exitCode).toBe(1)
  })

  it('names overdue work, with exit code 1', async () => {
    const ref = await insertProject(await newOrganization())
    const rolledBack = new Error('rolled back')
    // The task is not committed, so that no sweep runs it.
    const report = control.transaction(async (tx) => {
      await tx.insert(projectTasks).values({ projectRef: ref, kind: 'resize', dueAt: new Date(Date.now() - 3_600_000) })
      const { text, exitCode } = await readCommand(['status'])(tx as unknown as ControlDb)
      expect(text).toMatch(/\nopen tasks .*\d project resize pending/)
      expect(text).toMatch(/\nPROBLEM {8}a task has been due for 36\d\d s: project resize/)
      expect(exitCode).toBe(1)
      throw rolledBack
    })
    await expect(report).rejects.toBe(rolledBack)
    // Other tests may have tasks that are not overdue.
    expect((await adminReport('status')).text).not.toMatch(/due for \d+ s: project resize/)
  })
})

import { and, eq, inArray, lte, or, sql } from 'drizzle-orm'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { organizations, type ProjectStatus, projects, projectTasks, type TASK_KINDS } from '../../db/schema/index.ts'
import { type Fence, type ProjectEngine, Superseded } from '../../engine/engine.ts'
import type { SystemCtx } from '../../env.ts'
import { describeError } from '../../http/log.ts'
import { passwordOf, runnerPasswordOf } from '../../secrets/project.ts'
import { removeAllBytes } from '../../storage/sweep.ts'

type Task = typeof projectTasks.$inferSelect
type Project = typeof projects.$inferSelect
type Kind = (typeof TASK_KINDS)[number]
type Changes = Partial<typeof projects.$inferInsert>

interface Step {
  name: string
  /** Must bear being run again from its start; what it returns becomes the project's columns with its record. */
  run(ctx: SystemCtx, project: Project, fence: Fence): Promise<Changes | undefined>
}

interface Job {
  steps: readonly Step[]
  done: Changes & { status: ProjectStatus }
  /** What is told when it is done, beside the new status. */
  event?: 'v1.project.paused' | 'v1.project.restored' | 'v1.project.restarted' | 'v1.project.removed'
  /** The status after the last attempt; absent where the job is tried until it succeeds. */
  failed?: ProjectStatus
}

const createDatabase: Step = {
  name: 'create_database',
  run: async (ctx, project, fence) => {
    const [password, runnerPassword] = await Promise.all([passwordOf(ctx, project), runnerPasswordOf(ctx, project)])
    await ctx.engine.create({ ref: project.ref, password, runnerPassword }, fence)
    return { postgresVersion: await ctx.engine.version() }
  },
}
const HEALTH_TIMEOUT_MS = 10_000
const checkHealth: Step = {
  name: 'check_health',
  run: async ({ engine }, { ref }) => {
    const health = await engine.health(ref, HEALTH_TIMEOUT_MS)
    if (!health.healthy) throw new Error(health.error ?? 'the database does not answer')
    return undefined
  },
}
const removeObjects: Step = {
  name: 'remove_objects',
  run: async (ctx, { ref }) => {
    await removeAllBytes(ctx, ref)
    return undefined
  },
}
const step = (name: string, run: (engine: ProjectEngine, ref: string, fence: Fence) => Promise<void>): Step => ({
  name,
  run: async ({ engine }, { ref }, fence) => {
    await run(engine, ref, fence)
    return undefined
  },
})

const JOBS: Record<Kind, Job> = {
  create: { steps: [createDatabase, checkHealth], done: { status: 'ACTIVE_HEALTHY' }, failed: 'INIT_FAILED' },
  pause: {
    steps: [step('close_database', (engine, ref, fence) => engine.pause(ref, fence))],
    done: { status: 'INACTIVE' },
    event: 'v1.project.paused',
    failed: 'PAUSE_FAILED',
  },
  restore: {
    steps: [step('open_database', (engine, ref, fence) => engine.resume(ref, fence)), checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    event: 'v1.project.restored',
    failed: 'RESTORE_FAILED',
  },
  restart: {
    steps: [step('end_sessions', (engine, ref, fence) => engine.restart(ref, fence)), checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    event: 'v1.project.restarted',
    failed: 'ACTIVE_UNHEALTHY',
  },
  delete: {
    steps: [step('remove_database', (engine, ref, fence) => engine.remove(ref, fence)), removeObjects],
    done: { status: 'REMOVED' },
    event: 'v1.project.removed',
  },
}

const LEASE_MS = 120_000
const ATTEMPTS_MAX = 6
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000

/** Runs what is left of a task. A second message for the same task finds it leased or finished and does nothing. */
export async function runProjectTask(ctx: SystemCtx, id: string): Promise<void> {
  const claimed = await claim(ctx, id)
  if (!claimed) return
  const { task, project } = claimed
  const { steps } = JOBS[task.kind]
  // Counted before the work, so that a step that kills its consumer each time also comes to an end.
  if (JOBS[task.kind].failed && task.attempts > ATTEMPTS_MAX)
    return fail(ctx, task, new Error(task.lastError ?? 'its consumers died'))
  const fence = () => isHeld(ctx, task)
  try {
    for (const { name, run } of steps.filter(({ name }) => !task.stepsDone.includes(name))) {
      const changes = await run(ctx, project, fence)
      if (!(await recordStep(ctx, task, name, changes))) return
    }
  } catch (error) {
    if (error instanceof Superseded) return
    return fail(ctx, task, error)
  }
  await finish(ctx, task, { state: 'done', project: JOBS[task.kind].done })
}

async function claim({ db, now }: SystemCtx, id: string): Promise<{ task: Task; project: Project } | undefined> {
  const at = now()
  const [task] = await db
    .update(projectTasks)
    .set({
      state: 'running',
      claim: crypto.randomUUID(),
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      attempts: sql`${projectTasks.attempts} + 1`,
    })
    .where(
      and(
        eq(projectTasks.id, id),
        or(
          and(eq(projectTasks.state, 'pending'), lte(projectTasks.dueAt, at)),
          and(eq(projectTasks.state, 'running'), lte(projectTasks.leaseUntil, at)),
        ),
      ),
    )
    .returning()
  if (!task) return undefined
  const [project] = await db.select().from(projects).where(eq(projects.ref, task.projectRef))
  return project && { task, project }
}

/** False when the lease went to somebody else or the task was canceled: then nothing may be done any more. */
async function isHeld({ db }: SystemCtx, task: Task): Promise<boolean> {
  return (await db.select({ id: projectTasks.id }).from(projectTasks).where(held(task))).length > 0
}

/** The project's columns first: a crash in between repeats the step, where the other order would lose them. */
async function recordStep({ db, now }: SystemCtx, task: Task, name: string, changes: Changes = {}): Promise<boolean> {
  if (Object.keys(changes).length > 0) await db.update(projects).set(changes).where(eq(projects.ref, task.projectRef))
  const recorded = await db
    .update(projectTasks)
    .set({
      stepsDone: sql`array_append(${projectTasks.stepsDone}, ${name})`,
      leaseUntil: new Date(now().getTime() + LEASE_MS),
    })
    .where(held(task))
    .returning({ id: projectTasks.id })
  return recorded.length > 0
}

async function fail(ctx: SystemCtx, task: Task, error: unknown): Promise<void> {
  const text = error instanceof Error ? error.message : String(error)
  ctx.log.error('task_failed', {
    task: task.id,
    kind: task.kind,
    project: task.projectRef,
    attempt: task.attempts,
    error: describeError(error),
  })
  const statusReason = `${task.kind}: ${text}`
  const { failed } = JOBS[task.kind]
  if (failed && task.attempts >= ATTEMPTS_MAX) {
    return finish(ctx, task, { state: 'failed', project: { status: failed, statusReason } })
  }
  const delayMs = Math.min(RETRY_BASE_MS * 2 ** (task.attempts - 1), RETRY_MS_MAX)
  const freed = await ctx.db
    .update(projectTasks)
    .set({
      state: 'pending',
      claim: null,
      leaseUntil: null,
      dueAt: new Date(ctx.now().getTime() + delayMs),
      lastError: text,
    })
    .where(held(task))
    .returning({ id: projectTasks.id })
  if (freed.length > 0) {
    await ctx.db.update(projects).set({ statusReason }).where(eq(projects.ref, task.projectRef))
    await ctx.bindings.PROJECT_TASKS.send({ type: 'project-task', id: task.id }, { delaySeconds: delayMs / 1000 })
  }
}

interface Outcome {
  state: 'done' | 'failed'
  project: Changes & { status: ProjectStatus }
}

/** The task's end and the project's new status commit together, and only for who still holds the lease. */
async function finish(ctx: SystemCtx, task: Task, { state, project }: Outcome): Promise<void> {
  await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const ended = await tx
      .update(projectTasks)
      .set({ state, claim: null, leaseUntil: null, finishedAt: ctx.now() })
      .where(held(task))
      .returning({ id: projectTasks.id })
    if (ended.length === 0) return
    const [before] = await tx
      .select({ status: projects.status, id: organizations.id, slug: organizations.slug })
      .from(projects)
      .innerJoin(organizations, eq(organizations.id, projects.organizationId))
      .where(eq(projects.ref, task.projectRef))
      .for('no key update', { of: projects })
    if (!before) throw new Error(`the project ${task.projectRef} has no row`)
    await tx
      .update(projects)
      .set({ statusReason: null, ...project, ...(project.status === 'REMOVED' && { removedAt: ctx.now() }) })
      .where(eq(projects.ref, task.projectRef))
    await tellEnd(mutation, task, state, { before, status: project.status })
    await trace({
      action: `project.${task.kind}.${state}`,
      organizationId: before.id,
      projectRef: task.projectRef,
      detail: { status: project.status },
    })
  })
}

interface Transition {
  before: { status: ProjectStatus; id: string; slug: string }
  status: ProjectStatus
}

/** The events of a task's end, in the name of who started it. */
async function tellEnd({ publish }: Mutation, task: Task, state: Outcome['state'], { before, status }: Transition) {
  const subject = { organization: before, projectRef: task.projectRef }
  const actor = { userId: task.actorUserId ?? undefined }
  await publish(
    {
      ...subject,
      type: 'v1.project.status.changed',
      fields: { previous_status: before.status, current_status: status },
      idempotencyKey: `task/${task.id}/status`,
    },
    actor,
  )
  const { event } = JOBS[task.kind]
  if (state !== 'done' || !event) return
  const idempotencyKey = `task/${task.id}/${event}`
  if (event === 'v1.project.paused') {
    await publish({ ...subject, type: event, fields: { reason: 'api_request' }, idempotencyKey }, actor)
  } else {
    await publish({ ...subject, type: event, fields: {}, idempotencyKey }, actor)
  }
}

const held = (task: Task) =>
  and(eq(projectTasks.id, task.id), eq(projectTasks.state, 'running'), eq(projectTasks.claim, task.claim ?? ''))

const SWEPT_MAX = 100
/** A message sent this long ago may still be on its way; sooner than that the sweeper would only send doubles. */
const GRACE_MS = 15_000

/** Tasks whose message got lost or whose consumer died. */
export async function sendDueProjectTasks({ db, now, bindings, log }: SystemCtx): Promise<void> {
  const at = now()
  const due = await db
    .select({ id: projectTasks.id })
    .from(projectTasks)
    .where(
      or(
        and(eq(projectTasks.state, 'pending'), lte(projectTasks.dueAt, new Date(at.getTime() - GRACE_MS))),
        and(eq(projectTasks.state, 'running'), lte(projectTasks.leaseUntil, at)),
      ),
    )
    .orderBy(projectTasks.dueAt)
    .limit(SWEPT_MAX)
  if (due.length === 0) return
  await bindings.PROJECT_TASKS.sendBatch(due.map(({ id }) => ({ body: { type: 'project-task', id } })))
  log.info('tasks_sent_again', { count: due.length })
}

const BURIED_DELAY_MS = 60_000

/** After its message failed for good, a task waits a while and is then taken up by the sweeper. */
export async function buryProjectTask({ db, now }: SystemCtx, id: string): Promise<void> {
  await db
    .update(projectTasks)
    .set({ dueAt: new Date(now().getTime() + BURIED_DELAY_MS) })
    .where(and(eq(projectTasks.id, id), inArray(projectTasks.state, ['pending'])))
}

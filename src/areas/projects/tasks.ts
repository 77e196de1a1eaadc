import { and, eq, inArray, lte, or, type SQL, sql } from 'drizzle-orm'
import { uniqueViolation } from '../../db/failure.ts'
import { type Mutation, mutate } from '../../db/mutate.ts'
import {
  organizations,
  type ProjectStatus,
  projects,
  projectTasks,
  type TaskInput,
  type TaskKind,
} from '../../db/schema/index.ts'
import { type Fence, Superseded } from '../../engine/engine.ts'
import type { Ctx, SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { describeError } from '../../http/log.ts'

export type Task = typeof projectTasks.$inferSelect
type Project = typeof projects.$inferSelect
type Changes = Partial<typeof projects.$inferInsert>

export interface Work {
  project: Project
  task: Task
}

export interface Step {
  name: string
  /** Must bear being run again from its start; what it returns becomes the project's columns with its record. */
  run(ctx: SystemCtx, work: Work, fence: Fence): Promise<Changes | undefined>
}

interface End extends Work {
  state: 'done' | 'failed'
  reason?: string
  at: Date
  organization: { id: string; slug: string }
}

export interface Job {
  steps: readonly Step[]
  /** The project's columns once it is done; without a status among them it keeps its own. */
  done: Changes
  /** What is told when it is done, beside the new status. */
  event?: 'v1.project.paused' | 'v1.project.restored' | 'v1.project.restarted' | 'v1.project.removed'
  /** The project's columns after the last attempt; absent where the job is tried until it succeeds. */
  failed?(task: Task): Changes
  /** Commits with the end of the task; `reason` says why it failed. */
  ended?(mutation: Mutation, end: End): Promise<void>
}
export type Jobs = Record<TaskKind, Job>

/** The work can never succeed as it was asked for: it fails without another attempt. */
export class Hopeless extends Error {
  override name = 'Hopeless'
}

const ONE_OPEN = 'project_tasks_one_open'

/** Hands work on a project to the queue; refused while other work on it is open. */
export async function startTask(
  ctx: SystemCtx | Ctx,
  { tx, enqueue }: Mutation,
  { ref, kind, input = {} }: { ref: string; kind: TaskKind; input?: TaskInput },
): Promise<string> {
  const actorUserId = 'principal' in ctx ? ctx.principal.userId : undefined
  const [task] = await tx
    .insert(projectTasks)
    .values({ projectRef: ref, kind, input, actorUserId, dueAt: ctx.now(), createdAt: ctx.now() })
    .returning({ id: projectTasks.id })
    .catch((error) => {
      if (uniqueViolation(error) !== ONE_OPEN) throw error
      throw new ApiError('conflict.project_status', {
        detail: 'another operation on it is still running',
        cause: error,
      })
    })
  if (!task) throw new Error('the task was not inserted')
  enqueue({ type: 'project-task', id: task.id })
  return task.id
}

export const ofProject = (ref: string, kinds: readonly TaskKind[]) =>
  and(eq(projectTasks.projectRef, ref), inArray(projectTasks.kind, kinds))

/** Ends work that is open: who is at it can no longer record anything. Returns how many tasks there were. */
export async function cancelTasks({ now }: SystemCtx, { tx }: Mutation, which: SQL | undefined): Promise<number> {
  const canceled = await tx
    .update(projectTasks)
    .set({ state: 'canceled', finishedAt: now(), leaseUntil: null, claim: null })
    .where(and(which, inArray(projectTasks.state, ['pending', 'running'])))
    .returning({ id: projectTasks.id })
  return canceled.length
}

const LEASE_MS = 120_000
const LEASE_RENEWAL_MS = 30_000
const ATTEMPTS_MAX = 6
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000

/** Runs what is left of a task. A second message for the same task finds it leased or finished and does nothing. */
export async function runProjectTask(ctx: SystemCtx, jobs: Jobs, id: string): Promise<void> {
  const claimed = await claim(ctx, id)
  if (!claimed) return
  const { task, project } = claimed
  const job = jobs[task.kind]
  // Counted before the work, so that a step that kills its consumer each time also comes to an end.
  if (job.failed && task.attempts > ATTEMPTS_MAX)
    return fail(ctx, job, claimed, new Error(task.lastError ?? 'its consumers died'))
  const fence = () => isHeld(ctx, task)
  const lease = keepLease(ctx, task)
  try {
    for (const { name, run } of job.steps.filter(({ name }) => !task.stepsDone.includes(name))) {
      const changes = await run(ctx, { project, task }, fence)
      if (!(await recordStep(ctx, task, name, changes))) return
      // What the work comes to, should a later step fail, goes by what has been done.
      task.stepsDone.push(name)
    }
  } catch (error) {
    if (error instanceof Superseded) return
    return fail(ctx, job, claimed, error)
  } finally {
    lease.release()
  }
  await finish(ctx, job, claimed, { state: 'done', changes: job.done })
}

/** A step may take longer than a lease: it is renewed for as long as this isolate lives. */
function keepLease(ctx: SystemCtx, task: Task) {
  const renew = () =>
    ctx.db
      .update(projectTasks)
      .set({ leaseUntil: new Date(ctx.now().getTime() + LEASE_MS) })
      .where(held(task))
      .catch((error) => ctx.log.error('lease_not_renewed', { task: task.id, error: describeError(error) }))
  const timer = setInterval(renew, LEASE_RENEWAL_MS)
  return { release: () => clearInterval(timer) }
}

async function claim({ db, now }: SystemCtx, id: string): Promise<Work | undefined> {
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

/** Whether a task with an end is not tried again after this. */
export const isFinal = ({ attempts }: Task, error: unknown): boolean =>
  attempts >= ATTEMPTS_MAX || error instanceof Hopeless

async function fail(ctx: SystemCtx, job: Job, work: Work, error: unknown): Promise<void> {
  const { task } = work
  const text = error instanceof Error ? error.message : String(error)
  ctx.log.error('task_failed', {
    task: task.id,
    kind: task.kind,
    project: task.projectRef,
    attempt: task.attempts,
    error: describeError(error),
  })
  const statusReason = `${task.kind}: ${text}`
  if (job.failed && isFinal(task, error)) {
    const changes = job.failed(task)
    return finish(ctx, job, work, {
      state: 'failed',
      changes: { ...changes, ...(changes.status && { statusReason }) },
      reason: text,
    })
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
    if (job.done.status) await ctx.db.update(projects).set({ statusReason }).where(eq(projects.ref, task.projectRef))
    await ctx.bindings.PROJECT_TASKS.send({ type: 'project-task', id: task.id }, { delaySeconds: delayMs / 1000 })
  }
}

interface Outcome {
  state: 'done' | 'failed'
  changes: Changes
  reason?: string
}

/** The task's end and the project's new status commit together, and only for who still holds the lease. */
async function finish(ctx: SystemCtx, job: Job, work: Work, { state, changes, reason }: Outcome): Promise<void> {
  const { task } = work
  await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const ended = await tx
      .update(projectTasks)
      .set({ state, claim: null, leaseUntil: null, finishedAt: ctx.now(), ...(reason && { lastError: reason }) })
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
    const { status = before.status } = changes
    if (changes.status)
      await tx
        .update(projects)
        .set({ statusReason: null, ...changes, ...(status === 'REMOVED' && { removedAt: ctx.now() }) })
        .where(eq(projects.ref, task.projectRef))
    await job.ended?.(mutation, { ...work, state, at: ctx.now(), organization: before, ...(reason && { reason }) })
    await tellEnd(mutation, job, task, state, { before, status })
    await trace({
      action: `project.${task.kind}.${state}`,
      organizationId: before.id,
      projectRef: task.projectRef,
      detail: { status },
    })
  })
}

interface Transition {
  before: { status: ProjectStatus; id: string; slug: string }
  status: ProjectStatus
}

/** The events of a task's end, in the name of who started it. */
async function tellEnd(
  { publish }: Mutation,
  { event }: Job,
  task: Task,
  state: Outcome['state'],
  { before, status }: Transition,
) {
  const subject = { organization: before, projectRef: task.projectRef }
  const actor = { userId: task.actorUserId ?? undefined }
  if (status !== before.status)
    await publish(
      {
        ...subject,
        type: 'v1.project.status.changed',
        fields: { previous_status: before.status, current_status: status },
        idempotencyKey: `task/${task.id}/status`,
      },
      actor,
    )
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

import { eq } from 'drizzle-orm'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { organizations, type ProjectStatus, projects, projectTasks } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { describeError } from '../../http/log.ts'
import { held } from './task-lease.ts'
import { reasonOf } from './task-reason.ts'
import { type Changes, Hopeless, type Job, type Task, type Work } from './tasks.ts'

export const ATTEMPTS_MAX = 6
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000

/** Whether a task with an end is not tried again after this. */
export const isFinal = ({ attempts }: Task, error: unknown): boolean =>
  attempts >= ATTEMPTS_MAX || error instanceof Hopeless

export async function fail(ctx: SystemCtx, job: Job, work: Work, error: unknown): Promise<void> {
  const { task } = work
  const reason = reasonOf(task, error)
  const lastError = describeError(error)
  ctx.log.error('task_failed', {
    task: task.id,
    kind: task.kind,
    project: task.projectRef,
    attempt: task.attempts,
    error: lastError,
  })
  const statusReason = `${task.kind}: ${reason}`
  if (job.failed && isFinal(task, error)) {
    const changes = job.failed(task)
    return finish(ctx, job, work, {
      state: 'failed',
      changes: { ...changes, ...(changes.status && { statusReason }) },
      reason,
      lastError,
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
      lastError,
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
  /** Of a failure, for members and for the operator. */
  reason?: string
  lastError?: string
}

/** The task's end and the project's new status commit together, and only for who still holds the lease. */
export async function finish(
  ctx: SystemCtx,
  job: Job,
  work: Work,
  { state, changes, reason, lastError }: Outcome,
): Promise<void> {
  const { task } = work
  await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const ended = await tx
      .update(projectTasks)
      .set({ state, claim: null, leaseUntil: null, finishedAt: ctx.now(), ...(lastError && { lastError }) })
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

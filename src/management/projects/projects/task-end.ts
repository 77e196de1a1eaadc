import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineBusy, isServerFault, SqlError, SqlTimeout } from '../../../engine/engine-errors.ts'
import { organizations, type ProjectStatus, projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { count } from '../../../platform/metrics/counters.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { reasonOf } from './task-reason.ts'
import { type Changes, type Job, PERMANENT_ERRORS, projectLeases, type Task, type Work } from './tasks.ts'

export const ATTEMPTS_MAX = 6

/** Whether the task only has to wait for other work. The attempt then does not count. */
export const isPostponed = (error: unknown): boolean => error instanceof EngineBusy || error instanceof RemovalsPaused

const isPermanent = (error: unknown): boolean => PERMANENT_ERRORS.some((kind) => error instanceof kind)

/** Whether this error ends the task without another attempt. */
export const isFinal = ({ attempts }: Task, error: unknown): boolean =>
  !isPostponed(error) && (attempts >= ATTEMPTS_MAX || isPermanent(error))

/** Whether members can mend the error, such as a migration that Postgres refuses, and the operator cannot. */
const isOfMembers = ({ attempts }: Task, error: unknown): boolean =>
  (isPermanent(error) && attempts <= ATTEMPTS_MAX) ||
  error instanceof SqlTimeout ||
  (error instanceof SqlError && !isServerFault(error))

/** Schedules a retry of the task, or ends it as failed after its last attempt. */
export async function failTask(ctx: SystemCtx, job: Job, work: Work, error: unknown): Promise<void> {
  const { task } = work
  const reason = reasonOf(task, error)
  const lastError = describeError(error)
  const { id, kind, projectRef: project, attempts: attempt } = task
  const fields = { task: id, kind, project, attempt }
  if (isOfMembers(task, error)) ctx.log.info('task_refused', { ...fields, error: reason })
  else ctx.log.error('task_failed', { ...fields, error: lastError })
  const statusReason = `${task.kind}: ${reason}`
  if (job.failed && isFinal(task, error)) {
    const changes = job.failed(task, error)
    return finishTask(ctx, job, work, {
      state: 'failed',
      changes: { ...changes, ...(changes.status && { statusReason }) },
      reason,
      lastError,
    })
  }
  if ((await projectLeases.postpone(ctx, task, lastError)) && job.done.status)
    await ctx.db.update(projects).set({ statusReason }).where(eq(projects.ref, task.projectRef))
}

interface Outcome {
  state: 'done' | 'failed'
  changes: Changes
  /** Reason of the failure, for members of the organization. */
  reason?: string
  /** Reason of the failure, for the operator. */
  lastError?: string
}

/** Commits the end of the task and the project's new status together, if the lease is still held. */
export async function finishTask(
  ctx: SystemCtx,
  job: Job,
  work: Work,
  { state, changes, reason, lastError }: Outcome,
): Promise<void> {
  const { task } = work
  const hasEnded = await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    if (!(await projectLeases.end(ctx, mutation, task, { state, ...(lastError && { lastError }) }))) return false
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
    await publishEndEvents(mutation, job, task, state, { before, status, reason })
    await trace({
      action: `project.${task.kind}.${state}`,
      organizationId: before.id,
      projectRef: task.projectRef,
      detail: { status },
    })
    return true
  })
  if (hasEnded) count(ctx, 'tasks_ended', ['project', task.kind, state])
}

interface Transition {
  before: { status: ProjectStatus; id: string; slug: string }
  status: ProjectStatus
  reason: string | undefined
}

/** Publishes the events of the end of a task, with the user who started it as the actor. */
async function publishEndEvents(
  { publish }: Mutation,
  { event }: Job,
  task: Task,
  state: Outcome['state'],
  { before, status, reason }: Transition,
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
        reason,
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

import { and, eq, inArray, lt, lte, or, type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { projects, type ServedWorker, type WorkerSpec, workers, workerTasks } from '../../../model/tables/index.ts'
import { logsKeptSince } from '../../../outbound/logs/purge.ts'
import { nextCronTime } from '../../../platform/cron-expression.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { describeError } from '../../../platform/http/log.ts'
import { count } from '../../../platform/metrics/counters.ts'
import { send } from '../../../platform/queue/send.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'
import { BuilderBusy, BuildFailed } from '../../../services/runtime/build-client.ts'
import { requireImage, touchImage } from '../../../services/workers/worker-images.ts'
import { forgetPlan } from '../../../services/workers/worker-plan.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { createLeases, isLapsed } from '../../kernel/task-leases.ts'
import { lockStatus } from '../../projects/projects/status.ts'
import { reasonOf } from '../../projects/projects/task-reason.ts'
import type { WorkerRow } from './convert.ts'

type WorkerTask = typeof workerTasks.$inferSelect

export interface Work {
  task: WorkerTask
  worker: WorkerRow
  project: typeof projects.$inferSelect
}

export interface WorkerJobs {
  /** Rejects with BuildFailed if a retry would fail the same way. Returns undefined if the lease was lost. */
  build(ctx: SystemCtx, work: Work): Promise<ServedWorker | undefined>
  /** Stops instances that a build has started but that will not be used. */
  drop(ctx: SystemCtx, work: Work, served: ServedWorker): Promise<void>
  /** Must be idempotent. */
  teardown(ctx: SystemCtx, work: Work): Promise<void>
}

interface NewTask {
  workerId: string
  kind: WorkerTask['kind']
  uploadId?: string | undefined
  spec: WorkerSpec
}

/**
 * Starts a task and supersedes the active task of the worker, which can no longer record anything. A build without an upload
 * uses the upload of the superseded build. Returns the id of the upload, if any.
 */
export async function startWorkerTask(
  { now }: SystemCtx,
  { tx, enqueue }: Mutation,
  task: NewTask,
): Promise<string | undefined> {
  const [superseded] = await tx
    .update(workerTasks)
    .set({ state: 'superseded', finishedAt: now(), leaseUntil: null, claim: null })
    .where(and(eq(workerTasks.workerId, task.workerId), inArray(workerTasks.state, ['pending', 'running'])))
    .returning({ uploadId: workerTasks.uploadId })
  const uploadId = task.uploadId ?? (task.kind === 'build' ? superseded?.uploadId : null) ?? undefined
  const row = requireRow(
    await tx
      .insert(workerTasks)
      .values({ ...task, uploadId, dueAt: now(), createdAt: now() })
      .returning({ id: workerTasks.id }),
  )
  enqueue({ type: 'worker-task', id: row.id })
  return uploadId
}

/** Maximum number of tasks of a project that run at once: all projects share the builder, and builds may be slow. */
const RUNNING_OF_PROJECT_MAX = 2

export const workerLeases = createLeases({
  table: workerTasks,
  type: 'worker-task',
  project: sql`(select ${workers.projectRef} from ${workers} where ${workers.id} = ${workerTasks.workerId})`,
  runningMax: RUNNING_OF_PROJECT_MAX,
})
const ATTEMPTS_MAX = 5

/** Runs a task. A second message finds the task leased or finished and does nothing. */
export const runWorkerTask = (ctx: SystemCtx, jobs: WorkerJobs, id: string): Promise<void> =>
  workerLeases.run(ctx, id, async (lease) => {
    const work = await findWork(ctx, lease)
    if (!work || (await putBackIfFull(ctx, work, lease))) return
    await runLeased(ctx, jobs, work)
    await sendNext(ctx, work.project)
  })

/** Releases the task if enough others of the project are running, without counting the attempt. Returns whether it did. */
function putBackIfFull(ctx: SystemCtx, { project: { ref } }: Work, lease: SQL): Promise<boolean> {
  return mutate(ctx, async ({ tx }) => {
    // The lock serializes the checks: otherwise, tasks leased at the same time could all be put back.
    await lockStatus({ tx }, ref)
    const running = await tx
      .select({ id: workerTasks.id })
      .from(workerTasks)
      .innerJoin(workers, eq(workers.id, workerTasks.workerId))
      .where(
        and(
          eq(workers.projectRef, ref),
          eq(workerTasks.state, 'running'),
          sql`not ${isLapsed(ctx, workerTasks, ctx.now())}`,
        ),
      )
    if (running.length <= RUNNING_OF_PROJECT_MAX) return false
    const released = { state: 'pending', claim: null, leaseUntil: null } as const
    await tx
      .update(workerTasks)
      .set({ ...released, attempts: sql`${workerTasks.attempts} - 1` })
      .where(lease)
    return true
  })
}

/** Sends the task of the project that has waited longest. If the message is lost, the sweeper sends it. */
async function sendNext(ctx: SystemCtx, { ref }: Work['project']): Promise<void> {
  const [next] = await ctx.db
    .select({ id: workerTasks.id })
    .from(workerTasks)
    .innerJoin(workers, eq(workers.id, workerTasks.workerId))
    .where(and(eq(workers.projectRef, ref), eq(workerTasks.state, 'pending'), lte(workerTasks.dueAt, ctx.now())))
    .orderBy(workerTasks.dueAt)
    .limit(1)
  if (next) await send(ctx, [{ type: 'worker-task', id: next.id }])
}

async function runLeased(ctx: SystemCtx, jobs: WorkerJobs, work: Work): Promise<void> {
  const { task } = work
  try {
    if (task.kind === 'teardown') await jobs.teardown(ctx, work)
    else if (task.attempts > ATTEMPTS_MAX)
      await failBuild(ctx, work, attemptsExhausted(task.lastError ?? 'each attempt stopped the builder'))
    else await buildAndSwitch(ctx, jobs, work)
  } catch (error) {
    await recordFailure(ctx, work, error)
  }
}

async function buildAndSwitch(ctx: SystemCtx, jobs: WorkerJobs, work: Work): Promise<void> {
  const { id } = work.task
  const served = await jobs.build(ctx, work)
  if (served && (await switchOver(ctx, work, served))) return
  // If only the lease was lost, the consumer that took it over serves the same instances.
  if (served && (await isSuperseded(ctx, id))) await jobs.drop(ctx, work, served)
  ctx.log.info('worker_task_not_held', { task: id })
}

async function isSuperseded({ db }: SystemCtx, id: string): Promise<boolean> {
  const isOpen = inArray(workerTasks.state, ['pending', 'running'])
  const isServed = eq(sql`${workers.served} ->> 'deploymentId'`, id)
  const current = await db
    .select({ id: workerTasks.id })
    .from(workerTasks)
    .innerJoin(workers, eq(workers.id, workerTasks.workerId))
    .where(and(eq(workerTasks.id, id), or(isOpen, isServed)))
  return current.length === 0
}

async function findWork({ db }: SystemCtx, lease: SQL): Promise<Work | undefined> {
  const [work] = await db
    .select({ task: workerTasks, worker: workers, project: projects })
    .from(workerTasks)
    .innerJoin(workers, eq(workers.id, workerTasks.workerId))
    .innerJoin(projects, eq(projects.ref, workers.projectRef))
    .where(lease)
  return work
}

const attemptsExhausted = (reason: string) =>
  `The installation could not build the worker in ${ATTEMPTS_MAX} attempts: ${reason}`

const REASON_LENGTH_MAX = 8_000

/** Errors of the program fail the build; errors of the installation are retried. */
async function recordFailure(ctx: SystemCtx, work: Work, error: unknown): Promise<void> {
  const { task } = work
  if (error instanceof RemovalsPaused || error instanceof BuilderBusy)
    return workerLeases.postponeUncounted(ctx, task, describeError(error))
  if (error instanceof BuildFailed && task.kind === 'build') return void (await failBuild(ctx, work, error.message))
  const reason = reasonOf(task, error)
  ctx.log.error('worker_task_failed', {
    task: task.id,
    kind: task.kind,
    worker: task.workerId,
    attempt: task.attempts,
    error: describeError(error),
  })
  if (task.kind === 'build' && task.attempts >= ATTEMPTS_MAX) {
    return void (await failBuild(ctx, work, attemptsExhausted(reason)))
  }
  await workerLeases.postpone(ctx, task, reason)
}

const switchOver = (ctx: SystemCtx, work: Work, served: ServedWorker): Promise<boolean> =>
  finish(ctx, work, {
    state: 'done',
    changes: {
      ...{ buildState: 'active', stateReason: null, spec: served.spec, served },
      cronDueAt: nextDueAt(ctx, work, served),
    },
    previousImage: work.worker.served?.image,
  })

/**
 * Calls that are due but not claimed yet stay due, if the previous version had all expressions of the new one. Otherwise a new
 * expression would also be called for the minutes before its deployment.
 */
function nextDueAt({ now }: SystemCtx, { worker }: Work, { crons = [] }: ServedWorker): Date | SQL | null {
  const next = nextCronTime(crons, now()) ?? null
  const isContinued = crons.every((cron) => worker.served?.crons?.includes(cron))
  return next && isContinued ? sql`least(${workers.cronDueAt}, ${next.toISOString()}::timestamptz)` : next
}

/** Fails the build. The previous deployment stays active with its spec. */
const failBuild = (ctx: SystemCtx, work: Work, reason: string): Promise<boolean> =>
  finish(ctx, work, {
    state: 'failed',
    changes: {
      buildState: 'failed',
      stateReason: reason.slice(0, REASON_LENGTH_MAX),
      ...(work.worker.served && { spec: work.worker.served.spec }),
    },
    reason,
  })

interface TaskEnd {
  state: 'done' | 'failed'
  changes: Omit<Partial<typeof workers.$inferInsert>, 'cronDueAt'> & { cronDueAt?: Date | SQL | null }
  reason?: string
  /** The image that may no longer be needed. */
  previousImage?: string | undefined
}

/** Commits the end of the task with the new state of the worker; returns false if the lease was lost. */
async function finish(
  ctx: SystemCtx,
  { task, project }: Work,
  { state, changes, reason, previousImage }: TaskEnd,
): Promise<boolean> {
  const hasEnded = await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const lastError = reason?.slice(0, REASON_LENGTH_MAX) ?? null
    if (!(await workerLeases.end(ctx, mutation, task, { state, lastError }))) return false
    await tx
      .delete(workerTasks)
      .where(
        and(
          eq(workerTasks.workerId, task.workerId),
          or(
            eq(workerTasks.state, 'superseded'),
            and(inArray(workerTasks.state, ['done', 'failed']), lt(workerTasks.finishedAt, logsKeptSince(ctx.now()))),
          ),
        ),
      )
    await tx
      .update(workers)
      .set({ ...changes, updatedAt: ctx.now() })
      .where(eq(workers.id, task.workerId))
    if (changes.served) await requireImage(tx, { ref: project.ref, sha256: changes.served.image })
    if (previousImage) await touchImage(ctx, tx, { ref: project.ref, sha256: previousImage })
    await trace({
      action: `worker.build.${state}`,
      organizationId: project.organizationId,
      projectRef: project.ref,
      detail: { worker: task.workerId },
    })
    return true
  }).finally(() => forgetPlan(project.ref))
  if (hasEnded) count(ctx, 'tasks_ended', ['worker', task.kind, state])
  return hasEnded
}

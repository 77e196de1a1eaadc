import { and, eq, inArray, lte, ne, or, sql } from 'drizzle-orm'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { projects, type ServedWorker, type WorkerSpec, workers, workerTasks } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { describeError } from '../../http/log.ts'
import { keyOf } from '../../programs/protocol.ts'
import { lift } from '../../programs/suspects.ts'
import { BuildFailed } from '../../runtime/build.ts'
import { leaveImage, requireImage } from '../../workers/images.ts'
import { forgetPlan } from '../../workers/plan.ts'
import { reasonOf } from '../projects/task-reason.ts'
import type { WorkerRow } from './convert.ts'

type WorkerTask = typeof workerTasks.$inferSelect

export interface Work {
  task: WorkerTask
  worker: WorkerRow
  project: typeof projects.$inferSelect
}

export interface WorkerJobs {
  /** Rejects with BuildFailed where another attempt would come to the same. Undefined where it is not held any more. */
  build(ctx: SystemCtx, work: Work): Promise<ServedWorker | undefined>
  /** Ends what a build has started and nobody will serve. */
  drop(ctx: SystemCtx, work: Work, served: ServedWorker): Promise<void>
  /** Must bear being run again from its start. */
  teardown(ctx: SystemCtx, work: Work): Promise<void>
}

interface NewTask {
  workerId: string
  kind: WorkerTask['kind']
  uploadId?: string | undefined
  spec: WorkerSpec
}

/** Takes the place of whatever is still under way with the worker: that can record nothing any more. */
export async function startWorkerTask({ now }: SystemCtx, { tx, enqueue }: Mutation, task: NewTask): Promise<void> {
  await tx
    .update(workerTasks)
    .set({ state: 'superseded', finishedAt: now(), leaseUntil: null, claim: null })
    .where(and(eq(workerTasks.workerId, task.workerId), inArray(workerTasks.state, ['pending', 'running'])))
  const [row] = await tx
    .insert(workerTasks)
    .values({ ...task, dueAt: now(), createdAt: now() })
    .returning({ id: workerTasks.id })
  if (!row) throw new Error('the task was not inserted')
  enqueue({ type: 'worker-task', id: row.id })
}

const LEASE_MS = 60_000
const LEASE_RENEWAL_MS = 15_000
const ATTEMPTS_MAX = 5
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000

/** A second message for the same task finds it leased or finished and does nothing. */
export async function runWorkerTask(ctx: SystemCtx, jobs: WorkerJobs, id: string): Promise<void> {
  const work = await claim(ctx, id)
  if (!work) return
  const { task } = work
  const lease = keepLease(ctx, task)
  try {
    if (task.kind === 'teardown') await jobs.teardown(ctx, work)
    else if (task.attempts > ATTEMPTS_MAX)
      await failBuild(ctx, work, gaveUp(task.lastError ?? 'it stopped its builder each time'))
    else await buildAndSwitch(ctx, jobs, work)
  } catch (error) {
    await fail(ctx, work, error)
  } finally {
    lease.release()
  }
}

async function buildAndSwitch(ctx: SystemCtx, jobs: WorkerJobs, work: Work): Promise<void> {
  const { id } = work.task
  const served = await jobs.build(ctx, work)
  if (served && (await switchOver(ctx, work, served))) {
    return lift(keyOf({ kind: 'worker', ref: work.project.ref, name: work.worker.name }))
  }
  // Another consumer that took it over after a lapsed lease serves the same instances.
  if (served && !(await isWanted(ctx, id))) await jobs.drop(ctx, work, served)
  ctx.log.info('worker_task_not_held', { task: id })
}

async function isWanted({ db }: SystemCtx, id: string): Promise<boolean> {
  const wanted = and(eq(workerTasks.id, id), inArray(workerTasks.state, ['pending', 'running', 'done']))
  return (await db.select({ id: workerTasks.id }).from(workerTasks).where(wanted)).length > 0
}

async function claim({ db, now }: SystemCtx, id: string): Promise<Work | undefined> {
  const at = now()
  const [task] = await db
    .update(workerTasks)
    .set({
      state: 'running',
      claim: crypto.randomUUID(),
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      // Counted before the work, so that a build that kills its consumer each time also comes to an end.
      attempts: sql`${workerTasks.attempts} + 1`,
    })
    .where(
      and(
        eq(workerTasks.id, id),
        or(
          and(eq(workerTasks.state, 'pending'), lte(workerTasks.dueAt, at)),
          and(eq(workerTasks.state, 'running'), lte(workerTasks.leaseUntil, at)),
        ),
      ),
    )
    .returning()
  if (!task) return undefined
  const [found] = await db
    .select({ worker: workers, project: projects })
    .from(workers)
    .innerJoin(projects, eq(projects.ref, workers.projectRef))
    .where(eq(workers.id, task.workerId))
  return found && { task, ...found }
}

const held = ({ id, claim }: WorkerTask) =>
  and(eq(workerTasks.id, id), eq(workerTasks.state, 'running'), eq(workerTasks.claim, claim ?? ''))

/** False once another task, or another consumer, has taken its place. */
export const isHeld = async ({ db }: SystemCtx, task: WorkerTask): Promise<boolean> =>
  (await db.select({ id: workerTasks.id }).from(workerTasks).where(held(task))).length > 0

/** A build may take longer than a lease: it is renewed for as long as this isolate lives. */
function keepLease({ db, now, log }: SystemCtx, task: WorkerTask) {
  const renew = () =>
    db
      .update(workerTasks)
      .set({ leaseUntil: new Date(now().getTime() + LEASE_MS) })
      .where(held(task))
      .catch((error) => log.error('lease_not_renewed', { task: task.id, error: describeError(error) }))
  const timer = setInterval(renew, LEASE_RENEWAL_MS)
  return { release: () => clearInterval(timer) }
}

const gaveUp = (reason: string) => `The installation could not build it in ${ATTEMPTS_MAX} attempts: ${reason}`

const TOLD_MAX = 8_000

/** What the developer can mend ends the build; what is ours to mend is tried again for a while. */
async function fail(ctx: SystemCtx, work: Work, error: unknown): Promise<void> {
  const { task } = work
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
    return void (await failBuild(ctx, work, gaveUp(reason)))
  }
  const delayMs = Math.min(RETRY_BASE_MS * 2 ** (task.attempts - 1), RETRY_MS_MAX)
  const freed = await ctx.db
    .update(workerTasks)
    .set({
      state: 'pending',
      claim: null,
      leaseUntil: null,
      dueAt: new Date(ctx.now().getTime() + delayMs),
      lastError: reason,
    })
    .where(held(task))
    .returning({ id: workerTasks.id })
  if (freed.length === 0) return
  await ctx.bindings.WORKER_BUILDS.send({ type: 'worker-task', id: task.id }, { delaySeconds: delayMs / 1000 })
}

const switchOver = (ctx: SystemCtx, work: Work, served: ServedWorker): Promise<boolean> =>
  finish(ctx, work, {
    state: 'done',
    changes: { buildState: 'active', stateReason: null, spec: served.spec, served },
    left: work.worker.served?.image,
  })

/** What was served before goes on, with the spec that it has. */
const failBuild = (ctx: SystemCtx, work: Work, reason: string): Promise<boolean> =>
  finish(ctx, work, {
    state: 'failed',
    changes: {
      buildState: 'failed',
      stateReason: reason.slice(0, TOLD_MAX),
      ...(work.worker.served && { spec: work.worker.served.spec }),
    },
    reason,
  })

interface End {
  state: 'done' | 'failed'
  changes: Partial<typeof workers.$inferInsert>
  reason?: string
  /** The image that nobody may need any more. */
  left?: string | undefined
}

/** The end of the task and what the worker has become commit together, and only for who still holds the lease: else false. */
async function finish(
  ctx: SystemCtx,
  { task, worker, project }: Work,
  { state, changes, reason, left }: End,
): Promise<boolean> {
  return mutate(ctx, async ({ tx, trace }) => {
    const ended = await tx
      .update(workerTasks)
      .set({
        state,
        claim: null,
        leaseUntil: null,
        finishedAt: ctx.now(),
        lastError: reason?.slice(0, TOLD_MAX) ?? null,
      })
      .where(held(task))
      .returning({ id: workerTasks.id })
    if (ended.length === 0) return false
    await tx
      .delete(workerTasks)
      .where(
        and(
          eq(workerTasks.workerId, task.workerId),
          ne(workerTasks.id, task.id),
          inArray(workerTasks.state, ['done', 'failed', 'superseded']),
        ),
      )
    await tx
      .update(workers)
      .set({ ...changes, updatedAt: ctx.now() })
      .where(eq(workers.id, task.workerId))
    if (changes.served) await requireImage(tx, { ref: project.ref, sha256: changes.served.image })
    if (left) await leaveImage(ctx, tx, { ref: project.ref, sha256: left })
    await trace({
      action: `worker.build.${state}`,
      organizationId: project.organizationId,
      projectRef: project.ref,
      detail: { worker: task.workerId },
    })
    return true
  }).finally(() => forgetPlan(project.ref, worker.name))
}

const SWEPT_MAX = 100
/** A message sent this long ago may still be on its way; sooner than that the sweeper would only send doubles. */
const GRACE_MS = 15_000

/** Tasks whose message got lost or whose consumer died. */
export async function sendDueWorkerTasks({ db, now, bindings, log }: SystemCtx): Promise<void> {
  const at = now()
  const due = await db
    .select({ id: workerTasks.id })
    .from(workerTasks)
    .where(
      or(
        and(eq(workerTasks.state, 'pending'), lte(workerTasks.dueAt, new Date(at.getTime() - GRACE_MS))),
        and(eq(workerTasks.state, 'running'), lte(workerTasks.leaseUntil, at)),
      ),
    )
    .orderBy(workerTasks.dueAt)
    .limit(SWEPT_MAX)
  if (due.length === 0) return
  await bindings.WORKER_BUILDS.sendBatch(due.map(({ id }) => ({ body: { type: 'worker-task', id } })))
  log.info('worker_tasks_sent_again', { count: due.length })
}

const BURIED_DELAY_MS = 60_000

/** After its message failed for good, a task waits a while and is then taken up by the sweeper. */
export async function buryWorkerTask({ db, now }: SystemCtx, id: string): Promise<void> {
  await db
    .update(workerTasks)
    .set({ dueAt: new Date(now().getTime() + BURIED_DELAY_MS) })
    .where(and(eq(workerTasks.id, id), eq(workerTasks.state, 'pending')))
}

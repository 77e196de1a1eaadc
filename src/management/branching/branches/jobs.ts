import { and, eq, isNull } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { type Fence, SqlError, Superseded } from '../../../engine/engine.ts'
import {
  actionRuns,
  type BranchStatus,
  branches,
  organizations,
  projects,
  RUN_STEPS,
  type RunKind,
  type RunStep,
} from '../../../model/tables/index.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { unpreparedColumns } from '../../projects/projects/prepare-databases.ts'
import { isFinal } from '../../projects/projects/task-end.ts'
import { reasonOf } from '../../projects/projects/task-reason.ts'
import { type Job, type Jobs, PermanentError, type Step, type Task } from '../../projects/projects/tasks.ts'
import { tell } from './branch-events.ts'
import { DEEDS, type Deed, keepHistory } from './branch-steps.ts'
import { endOfCommit } from './commit-files.ts'
import type { BranchRow } from './convert.ts'
import { endSteps, type Log, logOf, RUN_COLUMNS, type Run, STEPS_OF, setStep } from './runs.ts'

type Project = typeof projects.$inferSelect & { organizationSlug: string }

/** What a step works with. */
export interface Site {
  run: Run
  branch: BranchRow
  own: Project
  parent: Project
  fence: Fence
  log: Log
}

/** What the branch is once the step has been done; it is ready with the end of the run, as its project is. */
const STATUS_AFTER: Partial<Record<RunStep, BranchStatus>> = {
  health: 'RUNNING_MIGRATIONS',
  migrate: 'MIGRATIONS_PASSED',
}

const stepOf = (kind: RunKind, name: RunStep): Step => ({
  name,
  async run(ctx, { task }, fence) {
    const site = await siteOf(ctx, { task, name, fence })
    await attempt(ctx, task, { site, name, deed: DEEDS[kind][name] })
    await ctx.db.execute(setStep(ctx, site.run.id, name, 'EXITED'))
    const status = STATUS_AFTER[name]
    if (status) await setStatus(ctx, task, site, status)
    return name === 'clone' ? { postgresVersion: await ctx.engine.version(site.own.ref) } : undefined
  },
})

/** Recorded by itself, and before the database goes away, as the end of a reset depends on whether its database may be gone; people see it as a part of `clone`. */
const keep: Step = {
  name: 'keep',
  async run(ctx, { task }, fence) {
    const site = await siteOf(ctx, { task, name: 'clone', fence })
    await attempt(ctx, task, { site, name: 'clone', deed: keepHistory })
    return unpreparedColumns(ctx)
  },
}

interface Attempt {
  site: Site
  name: RunStep
  deed: Deed | undefined
}

async function attempt(ctx: SystemCtx, task: Task, { site, name, deed }: Attempt): Promise<void> {
  const { run, log } = site
  await ctx.db.execute(setStep(ctx, run.id, name, 'RUNNING'))
  try {
    await deed?.(ctx, site)
  } catch (error) {
    if (error instanceof Superseded) throw error
    const reason = isRefusal(error) ? new PermanentError(error.message, { cause: error }) : error
    const final = isFinal(task, reason)
    await log(`failed: ${reasonOf(task, reason)}${final ? '' : '; it will be tried again'}`)
    await ctx.db.execute(setStep(ctx, run.id, name, final ? 'DEAD' : 'RESTARTING'))
    throw reason
  }
}

async function siteOf(ctx: SystemCtx, { task, name, fence }: { task: Task; name: RunStep; fence: Fence }) {
  return { ...(await findSite(ctx, task, fence)), fence, log: logOf(ctx, task.input.runId ?? '', name) }
}

/** What others do at the same time (40001, 40P01, 55P03, 55006), and connections that there are too few of (53300). */
const PASSING = ['40001', '40P01', '55P03', '55006', '53300']

/** Postgres has refused the statement and would do so again. */
const isRefusal = (error: unknown): error is SqlError => error instanceof SqlError && !PASSING.includes(error.code)

async function findSite({ db }: SystemCtx, { input }: Task, fence: Fence) {
  const [found] = await db
    .select({ run: RUN_COLUMNS, branch: branches })
    .from(actionRuns)
    .innerJoin(branches, eq(branches.id, actionRuns.branchId))
    .where(and(eq(actionRuns.id, input.runId ?? ''), isNull(branches.removedAt)))
  if (!found) return giveUp(fence, 'the branch is gone')
  const projectOf = async (ref: string): Promise<Project> => {
    const [row] = await db
      .select({ project: projects, organizationSlug: organizations.slug })
      .from(projects)
      .innerJoin(organizations, eq(organizations.id, projects.organizationId))
      .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
    if (!row) return giveUp(fence, `the project ${ref} is gone`)
    return { ...row.project, organizationSlug: row.organizationSlug }
  }
  const [own, parent] = await Promise.all([projectOf(found.branch.projectRef), projectOf(found.branch.parentRef)])
  return { ...found, own, parent }
}

/** A run is canceled with its branch. One that is not has nothing to wait for either, and must not hold up its project. */
async function giveUp(fence: Fence, reason: string): Promise<never> {
  throw (await fence()) ? new PermanentError(reason) : new Superseded(reason)
}

type Told = Pick<Site, 'run' | 'branch' | 'own' | 'fence'>

/** Each status is told once for a run, however often its step is done; with the request for it already where that set it. */
async function setStatus(ctx: SystemCtx, task: Task, { run, branch: { id }, own, fence }: Told, status: BranchStatus) {
  await mutate(ctx, async (mutation) => {
    const [before] = await mutation.tx
      .select({ status: branches.status })
      .from(branches)
      .where(and(eq(branches.id, id), isNull(branches.removedAt)))
      .for('no key update')
    if (before?.status === status) return
    const branch = await updateStatus(mutation, id, status, ctx.now())
    if (!branch) return giveUp(fence, 'the branch is gone')
    const actor = { userId: task.actorUserId ?? undefined }
    await tell(mutation, own, branch, 'v1.project.branch.updated', { actor, idempotencyKey: `run/${run.id}/${status}` })
  })
}

async function updateStatus({ tx }: Mutation, id: string, status: BranchStatus, updatedAt: Date) {
  const [branch] = await tx
    .update(branches)
    .set({ status, updatedAt })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning()
  return branch
}

/** What failed is the deploy, once all before it has been done. */
const failureOf = (kind: RunKind, { stepsDone }: Task): BranchStatus =>
  STEPS_OF[kind].every((name) => name === 'deploy' || stepsDone.includes(name))
    ? 'FUNCTIONS_FAILED'
    : 'MIGRATIONS_FAILED'

const isPastHealth = ({ stepsDone }: Task) => stepsDone.includes('health')

/** Until the history is kept, a reset removes nothing: the database is as it was. */
const statusWithoutReset = ({ stepsDone, input }: Task) => (stepsDone.includes('keep') ? undefined : input.statusBefore)

const jobOf = (kind: RunKind, { done, failed }: Pick<Job, 'done' | 'failed'>): Job => ({
  steps: [
    ...(kind === 'reset' ? [keep] : []),
    ...RUN_STEPS.filter((name) => STEPS_OF[kind].includes(name)).map((name) => stepOf(kind, name)),
  ],
  done,
  failed,
  async ended(mutation, { task, state, at, organization, reason }) {
    const { tx } = mutation
    const runId = task.input.runId ?? ''
    const [run] = await tx.select(RUN_COLUMNS).from(actionRuns).where(eq(actionRuns.id, runId))
    const status = state === 'done' ? 'FUNCTIONS_DEPLOYED' : failureOf(kind, task)
    const branch = run && (await updateStatus(mutation, run.branchId, status, at))
    if (state === 'failed') {
      const kept = ['EXITED', 'DEAD', ...(branch ? (['CREATED'] as const) : [])] as const
      await tx.execute(endSteps({ now: () => at }, eq(actionRuns.id, runId), kept))
    }
    if (run?.gitConfig)
      await endOfCommit(mutation, { runId, at, failure: state === 'failed' ? (reason ?? '') : undefined })
    if (!branch) return
    if (state === 'done' && run.kind === 'reset') {
      // The database has them now. What a reset that failed had kept stays until then.
      await tx.update(actionRuns).set({ kept: null }).where(eq(actionRuns.projectRef, branch.projectRef))
    }
    const actor = { userId: task.actorUserId ?? undefined }
    const place = { organizationId: organization.id, organizationSlug: organization.slug }
    const idempotencyKey = `run/${runId}/${status}`
    await tell(mutation, place, branch, 'v1.project.branch.updated', { actor, idempotencyKey, reason })
  },
})

const ACTIVE = { status: 'ACTIVE_HEALTHY' } as const

export const branchJobs = {
  branch_create: jobOf('create', {
    done: ACTIVE,
    failed: (task) => (isPastHealth(task) ? ACTIVE : { status: 'INIT_FAILED' }),
  }),
  branch_push: jobOf('push', { done: {}, failed: () => ({}) }),
  branch_merge: jobOf('merge', { done: {}, failed: () => ({}) }),
  branch_commit: jobOf('commit', { done: {}, failed: () => ({}) }),
  branch_reset: jobOf('reset', {
    done: ACTIVE,
    failed: (task) => (isPastHealth(task) ? ACTIVE : { status: statusWithoutReset(task) ?? 'RESTORE_FAILED' }),
  }),
} satisfies Partial<Jobs>

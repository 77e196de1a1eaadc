import { and, eq, isNull } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { SqlError, Superseded } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import {
  actionRuns,
  BRANCH_COLUMNS,
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
import { publishBranchEvent } from './branch-events.ts'
import { STEP_ACTIONS, saveHistory } from './branch-steps.ts'
import { endCommitRun } from './commit-files.ts'
import { createLog, endSteps, RUN_COLUMNS, STEPS_OF, type StepAction, type StepInput, setStep } from './runs.ts'

/** Status of the branch after a step. The branch becomes ready at the end of the run, together with its project. */
const STATUS_AFTER: Partial<Record<RunStep, BranchStatus>> = {
  health: 'RUNNING_MIGRATIONS',
  migrate: 'MIGRATIONS_PASSED',
}

const stepOf = (kind: RunKind, name: RunStep): Step => ({
  name,
  async run(ctx, { task }, fence) {
    const input = await readStepInput(ctx, { task, name, fence })
    await runAction(ctx, task, { input, name, action: STEP_ACTIONS[kind][name] })
    await ctx.db.execute(setStep(ctx, input.run.id, name, 'EXITED'))
    const status = STATUS_AFTER[name]
    if (status) await setStatus(ctx, task, input, status)
    if (name === 'clone') return { postgresVersion: await ctx.engine.version(input.own.ref) }
  },
})

/** Saves the history in a step of its own, because the outcome of a failed reset depends on it. Users see it as part of `clone`. */
const saveHistoryStep: Step = {
  name: 'keep',
  async run(ctx, { task }, fence) {
    const input = await readStepInput(ctx, { task, name: 'clone', fence })
    await runAction(ctx, task, { input, name: 'clone', action: saveHistory })
    return unpreparedColumns(ctx)
  },
}

interface NamedAction {
  input: StepInput
  name: RunStep
  action: StepAction | undefined
}

async function runAction(ctx: SystemCtx, task: Task, { input, name, action }: NamedAction): Promise<void> {
  const { run, log } = input
  await ctx.db.execute(setStep(ctx, run.id, name, 'RUNNING'))
  try {
    await action?.(ctx, input)
  } catch (error) {
    if (error instanceof Superseded) throw error
    const reason = isRefusal(error) ? new PermanentError(error.message, { cause: error }) : error
    const isLastAttempt = isFinal(task, reason)
    await log(`failed: ${reasonOf(task, reason)}${isLastAttempt ? '' : '; it will be retried'}`)
    await ctx.db.execute(setStep(ctx, run.id, name, isLastAttempt ? 'DEAD' : 'RESTARTING'))
    throw reason
  }
}

async function readStepInput(ctx: SystemCtx, { task, name, fence }: { task: Task; name: RunStep; fence: Fence }) {
  return { ...(await findRun(ctx, task, fence)), fence, log: createLog(ctx, task.input.runId ?? '', name) }
}

/** Transient errors: conflicts with other sessions (40001, 40P01, 55P03, 55006) and too many connections (53300). */
const TRANSIENT = ['40001', '40P01', '55P03', '55006', '53300']

/** Whether Postgres refused a statement and would refuse it again. */
const isRefusal = (error: unknown): error is SqlError => error instanceof SqlError && !TRANSIENT.includes(error.code)

async function findRun({ db }: SystemCtx, { input }: Task, fence: Fence) {
  const [found] = await db
    .select({ run: RUN_COLUMNS, branch: BRANCH_COLUMNS })
    .from(actionRuns)
    .innerJoin(branches, eq(branches.id, actionRuns.branchId))
    .where(and(eq(actionRuns.id, input.runId ?? ''), isNull(branches.removedAt)))
  if (!found) return giveUp(fence, 'the branch is gone')
  const projectOf = async (ref: string): Promise<StepInput['own']> => {
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

/** Ends a run whose branch or project is gone. If it was not canceled, it fails, so that it does not block its project. */
async function giveUp(fence: Fence, reason: string): Promise<never> {
  throw (await fence()) ? new PermanentError(reason) : new Superseded(reason)
}

type RunBranch = Pick<StepInput, 'run' | 'branch' | 'own' | 'fence'>

/** Sets the status of the branch. It is published once per run, even if the step is repeated. */
async function setStatus(
  ctx: SystemCtx,
  task: Task,
  { run, branch: { id }, own, fence }: RunBranch,
  status: BranchStatus,
) {
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
    await publishBranchEvent(mutation, own, branch, 'v1.project.branch.updated', {
      actor,
      idempotencyKey: `run/${run.id}/${status}`,
    })
  })
}

async function updateStatus({ tx }: Mutation, id: string, status: BranchStatus, updatedAt: Date) {
  const [branch] = await tx
    .update(branches)
    .set({ status, updatedAt })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning(BRANCH_COLUMNS)
  return branch
}

/** Status after a failure: FUNCTIONS_FAILED if only the deploy step is missing. */
const failureOf = (kind: RunKind, { stepsDone }: Task): BranchStatus =>
  STEPS_OF[kind].every((name) => name === 'deploy' || stepsDone.includes(name))
    ? 'FUNCTIONS_FAILED'
    : 'MIGRATIONS_FAILED'

const isPastHealth = ({ stepsDone }: Task) => stepsDone.includes('health')

/** The previous status, if a reset failed before it removed the database. */
const statusWithoutReset = ({ stepsDone, input }: Task) => (stepsDone.includes('keep') ? undefined : input.statusBefore)

const jobOf = (kind: RunKind, { done, failed }: Pick<Job, 'done' | 'failed'>): Job => ({
  steps: [
    ...(kind === 'reset' ? [saveHistoryStep] : []),
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
      const unchanged = ['EXITED', 'DEAD', ...(branch ? (['CREATED'] as const) : [])] as const
      await tx.execute(endSteps({ now: () => at }, eq(actionRuns.id, runId), unchanged))
    }
    if (run?.gitConfig)
      await endCommitRun(mutation, { runId, at, failure: state === 'failed' ? (reason ?? '') : undefined })
    if (!branch) return
    if (state === 'done' && run.kind === 'reset') {
      // The database now contains the saved history, including that of failed resets.
      await tx.update(actionRuns).set({ kept: null }).where(eq(actionRuns.projectRef, branch.projectRef))
    }
    const actor = { userId: task.actorUserId ?? undefined }
    const place = { organizationId: organization.id, organizationSlug: organization.slug }
    const idempotencyKey = `run/${runId}/${status}`
    await publishBranchEvent(mutation, place, branch, 'v1.project.branch.updated', { actor, idempotencyKey, reason })
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
  branch_finish: jobOf('finish', { done: {}, failed: () => ({}) }),
  branch_reset: jobOf('reset', {
    done: ACTIVE,
    failed: (task) => (isPastHealth(task) ? ACTIVE : { status: statusWithoutReset(task) ?? 'RESTORE_FAILED' }),
  }),
} satisfies Partial<Jobs>

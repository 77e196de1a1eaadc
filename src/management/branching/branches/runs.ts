import { eq, getTableColumns, type SQL, sql } from 'drizzle-orm'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import {
  actionRunLogs,
  actionRuns,
  type GitConfig,
  type ProjectStatus,
  RUN_STEPS,
  type RunKind,
  type RunStep,
  type StepRecord,
  type StepStatus,
  type TaskKind,
} from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { startTask } from '../../projects/projects/tasks.ts'
import type { BranchRow } from './convert.ts'

/** Without what may be large and has one reader. */
const { kept, files, ...columns } = getTableColumns(actionRuns)
export const RUN_COLUMNS = columns
export type Run = Omit<typeof actionRuns.$inferSelect, 'kept' | 'files'>

/** What each kind of run walks through. */
export const STEPS_OF: Record<RunKind, readonly RunStep[]> = {
  create: RUN_STEPS,
  push: ['pull', 'health', 'migrate', 'deploy'],
  merge: ['pull', 'health', 'migrate', 'deploy'],
  reset: RUN_STEPS,
  commit: ['pull', 'health', 'migrate', 'seed'],
}

const TASK_OF: Record<RunKind, TaskKind> = {
  create: 'branch_create',
  push: 'branch_push',
  merge: 'branch_merge',
  reset: 'branch_reset',
  commit: 'branch_commit',
}

interface NewRun {
  branch: BranchRow
  kind: RunKind
  migrationVersion?: string | undefined
  statusBefore?: ProjectStatus
  /** Of a commit at GitHub. */
  git?: { config: GitConfig; workdir: string } | undefined
}

/** A run and the task that does it: a merge works on the parent, every other run on the branch. */
export async function startRun(
  ctx: Ctx | SystemCtx,
  mutation: Mutation,
  { branch, kind, migrationVersion, statusBefore, git }: NewRun,
): Promise<string> {
  const id = crypto.randomUUID()
  const { projectRef, parentRef } = branch
  const ref = kind === 'merge' ? parentRef : projectRef
  const taskId = await startTask(ctx, mutation, {
    ref,
    kind: TASK_OF[kind],
    input: { runId: id, ...(statusBefore && { statusBefore }) },
  })
  const at = ctx.now()
  const steps = STEPS_OF[kind].map(
    (name): StepRecord => ({ name, status: 'CREATED', created_at: at.toISOString(), updated_at: at.toISOString() }),
  )
  await mutation.tx.insert(actionRuns).values({
    id,
    branchId: branch.id,
    projectRef,
    parentRef,
    taskId,
    kind,
    migrationVersion: migrationVersion ?? null,
    steps,
    ...(git && { gitConfig: git.config, workdir: git.workdir }),
    createdAt: at,
    updatedAt: at,
  })
  return id
}

/** Sets the status of a step that the run has; in one statement, as others may set other steps. */
export const setStep = ({ now }: SystemCtx, runId: string, name: RunStep, status: StepStatus) => {
  const at = now().toISOString()
  return sql`update ${actionRuns} set updated_at = ${at}, steps = (
    select jsonb_agg(case when step->>'name' = ${name}::text
      then step || jsonb_build_object('status', ${status}::text, 'updated_at', ${at}::text) else step end order by place)
    from jsonb_array_elements(steps) with ordinality as s(step, place)) where ${eq(actionRuns.id, runId)}`
}

/** A run that failed has steps that were never begun, which stay as they are. */
export const HAS_OPEN_STEPS = sql`not ${actionRuns.steps} @> '[{"status": "DEAD"}]' and exists (
  select from jsonb_array_elements(${actionRuns.steps}) as step where step->>'status' <> 'EXITED')`

/** Nobody is at these runs any more: their steps are dead that are in none of the statuses `kept`. */
export const endSteps = ({ now }: Pick<SystemCtx, 'now'>, which: SQL | undefined, kept: readonly StepStatus[]) => {
  const at = now().toISOString()
  return sql`update ${actionRuns} set updated_at = ${at}, steps = (
    select jsonb_agg(case when ${JSON.stringify(kept)}::jsonb ? (step->>'status') then step
      else step || jsonb_build_object('status', 'DEAD', 'updated_at', ${at}::text) end order by place)
    from jsonb_array_elements(steps) with ordinality as s(step, place)) where ${which}`
}

export type Log = (line: string) => Promise<void>

/** A migration's name may be as long as its owner likes, and a log is read whole. */
const LINE_LENGTH_MAX = 4_000

/** Lines of a run's log, for people. */
export const logOf =
  ({ db, now }: SystemCtx, runId: string, step: RunStep): Log =>
  async (line) => {
    await db.insert(actionRunLogs).values({ runId, step, line: line.slice(0, LINE_LENGTH_MAX), at: now() })
  }

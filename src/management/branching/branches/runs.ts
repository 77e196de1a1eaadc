import { and, arrayContains, desc, eq, exists, getTableColumns, inArray, ne, or, type SQL, sql } from 'drizzle-orm'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import type { Fence } from '../../../engine/fence.ts'
import {
  actionRunLogs,
  actionRuns,
  type BranchRow,
  type GitConfig,
  type ProjectStatus,
  type projects,
  projectTasks,
  RUN_STEPS,
  type RunKind,
  type RunStep,
  type StepRecord,
  type StepStatus,
} from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { startTask } from '../../projects/projects/tasks.ts'

/** Columns of a run without the large ones, each of which has a single reader. */
const { kept, files, ...columns } = getTableColumns(actionRuns)
export const RUN_COLUMNS = columns
export type Run = Omit<typeof actionRuns.$inferSelect, 'kept' | 'files'>

/** Steps of each kind of run. */
export const STEPS_OF: Record<RunKind, readonly RunStep[]> = {
  create: RUN_STEPS,
  push: ['pull', 'health', 'migrate', 'deploy'],
  merge: ['pull', 'health', 'migrate', 'deploy'],
  reset: RUN_STEPS,
  commit: ['pull', 'health', 'migrate', 'seed'],
  finish: RUN_STEPS.filter((name) => name !== 'clone'),
}

interface NewRun {
  branch: BranchRow
  kind: RunKind
  migrationVersion?: string | undefined
  statusBefore?: ProjectStatus
  /** The commit at GitHub; undefined for other runs. */
  git?: { config: GitConfig; workdir: string } | undefined
}

/** Starts a run with its task. A merge changes the parent, every other run the branch. */
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
    kind: `branch_${kind}`,
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

/** Kinds of runs that give a branch everything that a new branch has from its parent. */
const COMPLETING: RunKind[] = ['create', 'reset', 'finish']

/**
 * Whether the last run that should have completed the branch has failed: then a push or commit is a run of the kind `finish`. A
 * reset that left the branch as it was does not count.
 */
export async function isUnfinished({ tx }: Mutation, { projectRef }: BranchRow): Promise<boolean> {
  const [last] = await tx
    .select({ state: projectTasks.state })
    .from(actionRuns)
    .innerJoin(projectTasks, eq(projectTasks.id, actionRuns.taskId))
    .where(
      and(
        eq(actionRuns.projectRef, projectRef),
        inArray(actionRuns.kind, COMPLETING),
        or(ne(actionRuns.kind, 'reset'), arrayContains(projectTasks.stepsDone, ['keep'])),
      ),
    )
    .orderBy(desc(actionRuns.createdAt), desc(actionRuns.id))
    .limit(1)
  return last?.state === 'failed'
}

/** Sets the status of a step, in one statement because other steps may be set concurrently. */
export const setStep = ({ now }: SystemCtx, runId: string, name: RunStep, status: StepStatus) => {
  const at = now().toISOString()
  return sql`update ${actionRuns} set updated_at = ${at}, steps = (
    select jsonb_agg(case when step->>'name' = ${name}::text
      then step || jsonb_build_object('status', ${status}::text, 'updated_at', ${at}::text) else step end order by place)
    from jsonb_array_elements(steps) with ordinality as s(step, place)) where ${eq(actionRuns.id, runId)}`
}

/** Matches runs with open steps. A failed run has none, because its steps that never started stay CREATED. */
export const HAS_OPEN_STEPS = sql`not ${actionRuns.steps} @> '[{"status": "DEAD"}]' and exists (
  select from jsonb_array_elements(${actionRuns.steps}) as step where step->>'status' <> 'EXITED')`

/** Ends runs that no consumer works on: steps whose status is not in `unchanged` become DEAD. */
export const endSteps = ({ now }: Pick<SystemCtx, 'now'>, which: SQL | undefined, unchanged: readonly StepStatus[]) => {
  const at = now().toISOString()
  return sql`update ${actionRuns} set updated_at = ${at}, steps = (
    select jsonb_agg(case when ${JSON.stringify(unchanged)}::jsonb ? (step->>'status') then step
      else step || jsonb_build_object('status', 'DEAD', 'updated_at', ${at}::text) end order by place)
    from jsonb_array_elements(steps) with ordinality as s(step, place)) where ${which}`
}

/**
 * Stores migrations with a run while its task is running. The removal of a branch cancels the task and deletes what its runs have
 * stored; the lock makes one of the two wait for the other.
 */
export async function storeWithRun(
  { db }: SystemCtx,
  { id, taskId }: Run,
  stored: Partial<Pick<typeof actionRuns.$inferInsert, 'kept' | 'files'>>,
): Promise<void> {
  const running = db
    .select({ id: projectTasks.id })
    .from(projectTasks)
    .where(and(eq(projectTasks.id, taskId ?? ''), eq(projectTasks.state, 'running')))
    .for('share')
  await db
    .update(actionRuns)
    .set(stored)
    .where(and(eq(actionRuns.id, id), exists(running)))
}

export type Log = (line: string) => Promise<void>

/** Maximum length of a line, as messages of Postgres have none. */
const LINE_LENGTH_MAX = 4_000

/** Creates a writer of log lines for a step of a run. */
export const createLog =
  ({ db, now }: SystemCtx, runId: string, step: RunStep): Log =>
  async (line) => {
    await db.insert(actionRunLogs).values({ runId, step, line: line.slice(0, LINE_LENGTH_MAX), at: now() })
  }

type Project = typeof projects.$inferSelect & { organizationSlug: string }

/** Input of a step: the run with its branch, its own project and the parent. */
export interface StepInput {
  run: Run
  branch: BranchRow
  own: Project
  parent: Project
  fence: Fence
  log: Log
}

export type StepAction = (ctx: SystemCtx, input: StepInput) => Promise<void>

import { and, asc, desc, eq, lte, or, sql } from 'drizzle-orm'
import * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { actionRunLogs, actionRuns, type StepRecord } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { RUN_COLUMNS, type Run } from '../branches/runs.ts'
import { type ActionRun, type ActionRunsQuery, RUNS_MAX, type StepStatuses } from './schema.ts'

const toActionRun = (row: Run): z.input<typeof ActionRun> => ({
  id: row.id,
  branch_id: row.branchId,
  run_steps: row.steps,
  git_config: (row.gitConfig ?? null) as z.core.util.JSONType,
  workdir: row.workdir,
  check_run_id: row.checkRunId,
  created_at: row.createdAt.toISOString(),
  updated_at: row.updatedAt.toISOString(),
})

/** Selects the runs of a branch, or of all branches of a parent. Both columns are indexed. */
const ofProject = ({ ref, parentRef }: ProjectAccess) =>
  parentRef === null ? eq(actionRuns.parentRef, ref) : eq(actionRuns.projectRef, ref)

export async function listActionRuns(
  { db }: Ctx,
  project: ProjectAccess,
  { offset, limit }: z.output<typeof ActionRunsQuery>,
) {
  const rows = await db
    .select(RUN_COLUMNS)
    .from(actionRuns)
    .where(ofProject(project))
    .orderBy(desc(actionRuns.createdAt), desc(actionRuns.id))
    .limit(Math.min(limit, RUNS_MAX))
    .offset(offset)
  return rows.map(toActionRun)
}

export const countActionRuns = async ({ db }: Ctx, project: ProjectAccess): Promise<number> =>
  db.$count(actionRuns, ofProject(project))

export const getActionRun = async (ctx: Ctx, project: ProjectAccess, id: string) =>
  toActionRun(await findRun(ctx, project, id))

async function findRun({ db }: Ctx, { ref }: ProjectAccess, id: string): Promise<Run> {
  const [row] = z.uuid().safeParse(id).success
    ? await db
        .select(RUN_COLUMNS)
        .from(actionRuns)
        .where(and(eq(actionRuns.id, id), or(eq(actionRuns.projectRef, ref), eq(actionRuns.parentRef, ref))))
    : []
  if (!row) throw new ApiError('not_found.action_run')
  return row
}

const LOG_BYTES_MAX = 4 * 1024 ** 2
/** Bytes of a line's time and step, with some to spare. */
const LINE_BYTES = 40

/** Returns the log as lines of time, step and text. Of a large log it returns the last lines, as they tell how the run ended. */
export async function getActionRunLogs(ctx: Ctx, project: ProjectAccess, id: string): Promise<string> {
  const run = await findRun(ctx, project, id)
  const { number, line } = actionRunLogs
  const log = ctx.db
    .select({
      ...{ at: actionRunLogs.at, step: actionRunLogs.step, line, number },
      earlier: sql<number>`(row_number() over (order by ${number}) - 1)::int`.as('earlier'),
      bytes: sql<number>`sum(octet_length(${line}) + ${LINE_BYTES}) over (order by ${number} desc)`.as('bytes'),
    })
    .from(actionRunLogs)
    .where(eq(actionRunLogs.runId, run.id))
    .as('log')
  const lines = await ctx.db.select().from(log).where(lte(log.bytes, LOG_BYTES_MAX)).orderBy(asc(log.number))
  const leftOut = lines[0]?.earlier ? `${lines[0].earlier} earlier lines are left out\n` : ''
  return leftOut + lines.map(({ at, step, line }) => `${at.toISOString()} ${step}: ${line}\n`).join('')
}

const ENDED: readonly StepRecord['status'][] = ['EXITED', 'DEAD']
const hasEnded = (steps: readonly StepRecord[]) =>
  steps.some(({ status }) => status === 'DEAD') || steps.every(({ status }) => ENDED.includes(status))

function requireSteps(steps: readonly StepRecord[], names: readonly string[]): void {
  const known: string[] = steps.map(({ name }) => name)
  const issues = names
    .filter((name) => !known.includes(name))
    .map((name) => ({
      field: `body.${name}`,
      code: 'unknown',
      message: `is not a step of this run: must be one of ${known.join(', ')}`,
    }))
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}

/** Updates the status of steps that an external runner executes. */
export async function updateActionRun(
  ctx: Ctx,
  project: ProjectAccess,
  id: string,
  statuses: z.output<typeof StepStatuses>,
) {
  const { id: runId } = await findRun(ctx, project, id)
  await mutate(ctx, async ({ tx, trace }) => {
    const [row] = await tx.select(RUN_COLUMNS).from(actionRuns).where(eq(actionRuns.id, runId)).for('update')
    if (!row) throw new ApiError('not_found.action_run')
    if (hasEnded(row.steps)) throw new ApiError('conflict.run_ended')
    requireSteps(row.steps, Object.keys(statuses))
    const at = ctx.now().toISOString()
    const steps = row.steps.map((step) => {
      const status = statuses[step.name]
      return status ? { ...step, status, updated_at: at } : step
    })
    await tx
      .update(actionRuns)
      .set({ steps: sql`${JSON.stringify(steps)}::jsonb`, updatedAt: ctx.now() })
      .where(eq(actionRuns.id, runId))
    await trace({ project, action: 'action_run.update', detail: { run: runId, ...statuses } })
  })
  return { message: 'ok' }
}

import { and, eq, gt, inArray, isNull, lt, lte, type SQL, sql } from 'drizzle-orm'
import { unionAll } from 'drizzle-orm/pg-core'
import type { SystemCtx } from '../../../ctx.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { sleepAfterSecondsOf } from './database-spec.ts'
import type { Changes } from './tasks.ts'

const PROJECTS_A_TICK = 20
/** Number of failures after which a tick stops, because all databases may have the same problem. */
const FAILURES_A_TICK = 3
/** Time after which a tick stops; the next one continues. */
const TICK_MS = 50_000
const RETRY_MS = 60 * 60_000

type Project = typeof projects.$inferSelect

/** The condition of the partial index. */
const IS_RUNNING = sql`${projects.status} in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY')`

/** Columns that mark a project for preparation, for when its database or plan has changed. */
export const unpreparedColumns = ({ now }: Pick<SystemCtx, 'now'>): Changes => ({
  preparation: '',
  preparationDueAt: now(),
})

/** Upgrades the databases of running projects to the current preparation, oldest preparation first. */
export async function upgradeProjects(ctx: SystemCtx): Promise<void> {
  const until = ctx.now().getTime() + TICK_MS
  let failures = 0
  for (let turn = 0; turn < PROJECTS_A_TICK && ctx.now().getTime() < until; turn++) {
    const project = await takeDue(ctx)
    if (!project) return
    await upgrade(ctx, project).catch((error) => {
      ctx.log.error('project_upgrade_failed', { project: project.ref, error: describeError(error) })
      failures += 1
    })
    if (failures === FAILURES_A_TICK) return
  }
}

/** Takes a due project. If two consumers find the same one, only the first takes it. */
async function takeDue({ db, engine, now }: SystemCtx): Promise<Project | undefined> {
  const isDue = lte(projects.preparationDueAt, now())
  // `<` and `>` are one index lookup each; `<>` would scan the index.
  const next = (isOther: SQL) =>
    db
      .select({ ref: projects.ref })
      .from(projects)
      .where(and(isNull(projects.removedAt), IS_RUNNING, isOther, isDue))
      .orderBy(projects.preparation, projects.preparationDueAt)
      .limit(1)
  const { preparation } = engine
  const due = unionAll(next(lt(projects.preparation, preparation)), next(gt(projects.preparation, preparation)))
  const [taken] = await db
    .update(projects)
    .set({ preparationDueAt: new Date(now().getTime() + RETRY_MS) })
    .where(and(inArray(projects.ref, due.limit(1)), isDue))
    .returning()
  return taken
}

/** Upgrades a project. */
async function upgrade(ctx: SystemCtx, project: Project): Promise<void> {
  const { ref } = project
  const sleepAfterSeconds = await sleepAfterSecondsOf(ctx, project)
  await ctx.engine.prepare({ ref, runnerPassword: await runnerPasswordOf(ctx, project), sleepAfterSeconds })
  const postgresVersion = await ctx.engine.version(ref)
  await recordPreparation(ctx, project, { postgresVersion })
}

/**
 * Records that a database is prepared, unless another preparation was requested since the project was read, such as for a replaced
 * database or another plan.
 */
export const recordPreparation = (
  { db, engine: { preparation } }: SystemCtx,
  { ref, preparationDueAt }: Project,
  changes: Changes = {},
) =>
  db
    .update(projects)
    .set({ ...changes, preparation })
    .where(and(eq(projects.ref, ref), eq(projects.preparationDueAt, preparationDueAt)))

import { and, eq, gt, inArray, isNull, lt, lte, type SQL, sql } from 'drizzle-orm'
import { unionAll } from 'drizzle-orm/pg-core'
import type { SystemCtx } from '../../../ctx.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { sleepAfterSecondsOf } from './database-spec.ts'
import type { Changes } from './tasks.ts'

const PROJECTS_A_TICK = 20
/** What is wrong may be wrong with the whole cluster. */
const FAILURES_A_TICK = 3
/** Then the next tick goes on. */
const TICK_MS = 50_000
const AGAIN_MS = 60 * 60_000

type Project = typeof projects.$inferSelect

/** As the index says it. */
const IS_RUNNING = sql`${projects.status} in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY')`

/** For a project that gets another database, or another plan: it is brought to what it must have. */
export const unpreparedColumns = ({ now }: Pick<SystemCtx, 'now'>): Changes => ({
  preparation: '',
  preparationDueAt: now(),
})

/** Brings the databases of running projects to what those of new ones have, those of the oldest preparations first. */
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

/** Of two who find the same one, the later one finds that it is due no more. */
async function takeDue({ db, engine, now }: SystemCtx): Promise<Project | undefined> {
  const isDue = lte(projects.preparationDueAt, now())
  // Each is one look into the index, where what is not equal would be a walk through it.
  const next = (isOther: SQL) =>
    db
      .select({ ref: projects.ref })
      .from(projects)
      .where(and(isNull(projects.removedAt), IS_RUNNING, isOther, isDue))
      .orderBy(projects.preparation, projects.preparationDueAt)
      .limit(1)
  const { preparation } = engine
  const others = unionAll(next(lt(projects.preparation, preparation)), next(gt(projects.preparation, preparation)))
  const [taken] = await db
    .update(projects)
    .set({ preparationDueAt: new Date(now().getTime() + AGAIN_MS) })
    .where(and(inArray(projects.ref, others.limit(1)), isDue))
    .returning()
  return taken
}

/** Recorded only where nobody has asked for another look meanwhile, as who replaces the database does. */
async function upgrade(ctx: SystemCtx, project: Project): Promise<void> {
  const { ref, preparationDueAt } = project
  const { preparation } = ctx.engine
  const sleepAfterSeconds = await sleepAfterSecondsOf(ctx, project)
  await ctx.engine.prepare({ ref, runnerPassword: await runnerPasswordOf(ctx, project), sleepAfterSeconds })
  await ctx.db
    .update(projects)
    .set({ preparation })
    .where(and(eq(projects.ref, ref), eq(projects.preparationDueAt, preparationDueAt)))
}

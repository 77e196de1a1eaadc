import { and, eq, inArray, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { projects, projectTasks } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'

/** So long after its end, nobody works on a project any more. */
const GRACE_MS = 10 * 60_000
const REMOVED_MAX = 20
const TOLD_MAX = 20

/**
 * Once an hour: removes what projects left in the cluster that are removed, and ends work that is still planned on them. A
 * database of no known project is told of and stays, as it may be somebody else's.
 */
export async function reconcileProjects(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'reconcile'))) return
  const found = await ctx.engine.refs()
  const known = await ctx.db
    .select({ ref: projects.ref, removedAt: projects.removedAt })
    .from(projects)
    .where(inArray(projects.ref, found))
  const removed = known.filter(({ removedAt }) => removedAt && removedAt <= before(ctx)).map(({ ref }) => ref)
  for (const ref of removed.slice(0, REMOVED_MAX)) await removeAgain(ctx, ref)
  await cancelLeftTasks(ctx)
  const refs = new Set(known.map(({ ref }) => ref))
  const unknown = found.filter((ref) => !refs.has(ref))
  if (unknown.length > 0)
    ctx.log.error('databases_unknown', { count: unknown.length, refs: unknown.slice(0, TOLD_MAX).join(' ') })
}

const before = ({ now }: SystemCtx) => new Date(now().getTime() - GRACE_MS)

async function removeAgain({ db, engine, log }: SystemCtx, ref: string): Promise<void> {
  const isStillRemoved = async () => {
    const [row] = await db.select({ removedAt: projects.removedAt }).from(projects).where(eq(projects.ref, ref))
    return row?.removedAt != null
  }
  try {
    await engine.remove(ref, isStillRemoved)
    log.info('leftover_removed', { project: ref })
  } catch (error) {
    if (error instanceof RemovalsPaused) throw error
    log.error('leftover_not_removed', { project: ref, error: describeError(error) })
  }
}

async function cancelLeftTasks(ctx: SystemCtx): Promise<void> {
  const gone = sql`(select ref from ${projects} where removed_at <= ${before(ctx)})`
  const canceled = await ctx.db
    .update(projectTasks)
    .set({ state: 'canceled', claim: null, leaseUntil: null, finishedAt: ctx.now() })
    .where(and(inArray(projectTasks.state, ['pending', 'running']), sql`${projectTasks.projectRef} in ${gone}`))
    .returning({ id: projectTasks.id })
  if (canceled.length > 0) ctx.log.info('leftover_tasks_canceled', { count: canceled.length })
}

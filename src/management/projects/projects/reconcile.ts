import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { projects, projectTasks } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'
import { cancelTasks } from './tasks.ts'

/** Time after which no consumer works on a removed project any more. */
const GRACE_MS = 10 * 60_000
const REMOVED_MAX = 20
const LOGGED_MAX = 20

/**
 * Once an hour, removes leftover databases of removed projects and cancels their pending tasks. A database of an unknown project is
 * logged and stays, as it may belong to another installation.
 */
export async function reconcileProjects(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'reconcile'))) return
  const found = await ctx.engine.refs()
  const known = await ctx.db
    .select({ ref: projects.ref, removedAt: projects.removedAt })
    .from(projects)
    // One parameter for all: a statement has at most 65,535.
    .where(sql`${projects.ref} = any(${sql.param(found)}::text[])`)
  const removed = known.filter(({ removedAt }) => removedAt && removedAt <= removedBefore(ctx)).map(({ ref }) => ref)
  for (const ref of removed.slice(0, REMOVED_MAX)) await removeAgain(ctx, ref)
  await cancelLeftoverTasks(ctx)
  const refs = new Set(known.map(({ ref }) => ref))
  const unknown = found.filter((ref) => !refs.has(ref))
  if (unknown.length > 0)
    ctx.log.error('databases_unknown', { count: unknown.length, refs: unknown.slice(0, LOGGED_MAX).join(' ') })
}

const removedBefore = ({ now }: SystemCtx) => new Date(now().getTime() - GRACE_MS)

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

async function cancelLeftoverTasks(ctx: SystemCtx): Promise<void> {
  const removedRefs = sql`(select ref from ${projects} where removed_at <= ${removedBefore(ctx)})`
  const count = await cancelTasks(ctx, { tx: ctx.db }, sql`${projectTasks.projectRef} in ${removedRefs}`)
  if (count > 0) ctx.log.info('leftover_tasks_canceled', { count })
}

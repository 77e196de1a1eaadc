import { and, eq, gt, inArray, isNull, lt, lte, type SQL } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { projects } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Storage } from './database.ts'

const PROJECTS_PER_SWEEP = 20
const DAY_MS = 24 * 60 * 60 * 1000
/** Longer than any upload takes from its first byte to its row. */
export const GRACE_MS = DAY_MS
/** Time for which bytes remain after their object was replaced or removed, because a download may be reading them. */
export const DOWNLOAD_MS_MAX = 15 * 60 * 1000

/** Longer than one sweep of all leased projects. Projects that a crashed sweep did not reach become due again. */
const LEASE_MS = 30 * 60 * 1000

/** Leases the projects that are due, longest overdue first. */
export function leaseDueProjects(ctx: SystemCtx) {
  return leaseProjects(
    ctx,
    and(isNull(projects.removedAt), inArray(projects.status, ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY'])),
  )
}

/** Leases removed projects, once all uploads that were running at their removal have ended and can leave no more bytes. */
export const leaseRemovedProjects = (ctx: SystemCtx) =>
  leaseProjects(ctx, lt(projects.removedAt, later(ctx, -GRACE_MS)))

/** Moves the due time in the same statement, so that concurrent sweeps never lease the same project. */
function leaseProjects(ctx: SystemCtx, condition: SQL | undefined) {
  const { db, now } = ctx
  const next = db
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(condition, lte(projects.storageSweepDueAt, now())))
    .orderBy(projects.storageSweepDueAt)
    .limit(PROJECTS_PER_SWEEP)
    .for('update', { skipLocked: true })
  return db
    .update(projects)
    .set({ storageSweptAt: now(), storageSweepDueAt: later(ctx, LEASE_MS) })
    .where(inArray(projects.ref, next))
    .returning({ ref: projects.ref, after: projects.storageSweepAfter, until: projects.storageSweepDueAt })
}

/** Schedules the next sweep after a day, so that the project's database may sleep, unless a sooner one was scheduled meanwhile. */
export async function endSweep(ctx: SystemCtx, { ref, until }: { ref: string; until: Date | null }): Promise<void> {
  if (!until) return
  await ctx.db
    .update(projects)
    .set({ storageSweepDueAt: later(ctx, DAY_MS) })
    .where(and(eq(projects.ref, ref), eq(projects.storageSweepDueAt, until)))
}

const later = ({ now }: SystemCtx, ms: number) => new Date(now().getTime() + ms)

const SCHEDULE_EVERY_MS = 60_000

/** Delay before a sweep, by its reason: more pages to compare, a failed sweep, or removed versions that downloads may still read. */
const DELAY_MS = { more: 0, failed: 15 * 60 * 1000, waiting: DOWNLOAD_MS_MAX + SCHEDULE_EVERY_MS }

/** Schedules a sweep, unless a sooner one is scheduled already. */
export async function scheduleSweep(ctx: SystemCtx, ref: string, reason: keyof typeof DELAY_MS): Promise<void> {
  const at = later(ctx, DELAY_MS[reason])
  await ctx.db
    .update(projects)
    .set({ storageSweepDueAt: at })
    .where(and(eq(projects.ref, ref), gt(projects.storageSweepDueAt, at)))
}

const SCHEDULED_MAX = 10_000
/** When this isolate last scheduled a sweep, by project. */
const scheduledAt = new BoundedMap<string, number>(SCHEDULED_MAX)

/** Schedules a sweep after a request left unreferenced bytes. The request does not wait, and the row is written once a minute. */
export function sweepSoon({ ctx, project: { ref } }: Storage): void {
  const now = ctx.now().getTime()
  if (Math.abs(now - (scheduledAt.get(ref) ?? Number.NEGATIVE_INFINITY)) < SCHEDULE_EVERY_MS) return
  scheduledAt.set(ref, now)
  const scheduled = scheduleSweep(ctx, ref, 'waiting')
  ctx.waitUntil(
    scheduled.catch((error) =>
      ctx.log.error('storage_sweep_not_scheduled', { project: ref, error: describeError(error) }),
    ),
  )
}

import { and, eq, gt, inArray, isNull, lt, lte, type SQL } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { projects } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Storage } from './request.ts'

const PROJECTS_A_SWEEP = 20
const DAY_MS = 24 * 60 * 60 * 1000
/** Longer than any upload takes from its first byte to its row. */
export const GRACE_MS = DAY_MS
/** So long may a download of many pieces go on that began before its object was replaced or removed. */
export const READING_MS = 15 * 60 * 1000

/** Longer than all turns that are taken together: they are due again where the sweep did not come to their end. */
const LEASE_MS = 30 * 60 * 1000

/** Takes the projects that are due, those for longest first. */
export function takeTurns(ctx: SystemCtx) {
  return take(ctx, and(isNull(projects.removedAt), inArray(projects.status, ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY'])))
}

/** Uploads that were under way when their project was removed may have left bytes; by now all of them have ended. */
export const takeRemoved = (ctx: SystemCtx) => take(ctx, lt(projects.removedAt, later(ctx, -GRACE_MS)))

/** Of two sweeps that begin at once the later one finds that those of the earlier one are due no more. */
function take(ctx: SystemCtx, which: SQL | undefined) {
  const { db, now } = ctx
  const next = db
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(which, lte(projects.storageSweepDueAt, now())))
    .orderBy(projects.storageSweepDueAt)
    .limit(PROJECTS_A_SWEEP)
    .for('update', { skipLocked: true })
  return db
    .update(projects)
    .set({ storageSweptAt: now(), storageSweepDueAt: later(ctx, LEASE_MS) })
    .where(inArray(projects.ref, next))
    .returning({ ref: projects.ref, after: projects.storageSweepAfter, until: projects.storageSweepDueAt })
}

/** The project's database may sleep: if nothing made it due sooner meanwhile, it is due again after a day. */
export async function endTurn(ctx: SystemCtx, { ref, until }: { ref: string; until: Date | null }): Promise<void> {
  if (!until) return
  await ctx.db
    .update(projects)
    .set({ storageSweepDueAt: later(ctx, DAY_MS) })
    .where(and(eq(projects.ref, ref), eq(projects.storageSweepDueAt, until)))
}

const later = ({ now }: SystemCtx, ms: number) => new Date(now().getTime() + ms)

const MARK_EVERY_MS = 60_000

/** After what: more to look at, a failure, and what waits until nobody reads it any more. */
const AGAIN_MS = { more: 0, failed: 15 * 60 * 1000, waiting: READING_MS + MARK_EVERY_MS }

/** No later than that; who wants it sooner, as a request may while a sweep is under way, is not overruled. */
export async function sweepAgain(ctx: SystemCtx, ref: string, why: keyof typeof AGAIN_MS): Promise<void> {
  const at = later(ctx, AGAIN_MS[why])
  await ctx.db
    .update(projects)
    .set({ storageSweepDueAt: at })
    .where(and(eq(projects.ref, ref), gt(projects.storageSweepDueAt, at)))
}

const MARKS_MAX = 10_000
const marks = new Map<string, number>()

/** For requests after which nothing points at some bytes. They do not wait for it, and it is written once a minute. */
export function sweepSoon({ ctx, project: { ref } }: Storage): void {
  const now = ctx.now().getTime()
  if (Math.abs(now - (marks.get(ref) ?? Number.NEGATIVE_INFINITY)) < MARK_EVERY_MS) return
  if (marks.size >= MARKS_MAX) marks.clear()
  marks.set(ref, now)
  const marked = sweepAgain(ctx, ref, 'waiting')
  ctx.waitUntil(
    marked.catch((error) => ctx.log.error('storage_sweep_unmarked', { project: ref, error: describeError(error) })),
  )
}

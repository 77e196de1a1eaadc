import { and, eq, gt, inArray, lt, not, notExists, sql } from 'drizzle-orm'
import { alias } from 'drizzle-orm/pg-core'
import { PLANS } from '../../../config.ts'
import type { SystemCtx } from '../../../ctx.ts'
import type { Backup } from '../../../engine/backup.ts'
import { Superseded } from '../../../engine/engine.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { backups, organizations, projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'
import { backupDaysKept, dailyBackupDays } from './backup-plan.ts'

export const removedAt = (at: Date) => ({ status: 'REMOVED' as const, removedAt: at })

/** They went with the project's database. */
export async function forgetBackups({ db, now }: SystemCtx, ref: string): Promise<void> {
  await db
    .update(backups)
    .set(removedAt(now()))
    .where(and(eq(backups.projectRef, ref), eq(backups.status, 'COMPLETED')))
}

const ASKED_MAX = 1_000
const REMOVED_MAX = 200

/** Removes backups without a row, and those that failed or grew old. */
export async function removeOldBackups(ctx: SystemCtx): Promise<void> {
  await purgeRemoved(ctx)
  // To list them asks the bucket for each project.
  if (!(await claimHourlyRun(ctx, 'old_backups'))) return
  await expireBackups(ctx)
  const found = await ctx.engine.backups.list()
  const old: Backup[] = []
  for (let at = 0; at < found.length && old.length < REMOVED_MAX; at += ASKED_MAX) {
    old.push(...(await uselessAmong(ctx, found.slice(at, at + ASKED_MAX))))
  }
  for (const backup of old.slice(0, REMOVED_MAX)) {
    const fence = async () => (await uselessAmong(ctx, [backup])).length > 0
    await ctx.engine.backups.remove(backup, fence).catch((error) => {
      if (error instanceof RemovalsPaused) throw error
      if (error instanceof Superseded) return
      ctx.log.error('backup_not_removed', { project: backup.ref, backup: backup.id, error: describeError(error) })
    })
  }
}

/** The latest one stays, however old, where the next daily one will replace it: the project may have been paused for long. */
async function expireBackups({ db, now }: SystemCtx): Promise<void> {
  const newer = alias(backups, 'newer')
  const isLatest = notExists(
    db
      .select({ id: newer.id })
      .from(newer)
      .where(
        and(
          eq(newer.projectRef, backups.projectRef),
          eq(newer.status, 'COMPLETED'),
          gt(newer.insertedAt, backups.insertedAt),
        ),
      ),
  )
  for (const plan of PLANS) {
    const cutoff = new Date(now().getTime() - backupDaysKept(plan) * DAY_MS)
    const ofPlan = db
      .select({ ref: projects.ref })
      .from(projects)
      .innerJoin(organizations, eq(organizations.id, projects.organizationId))
      .where(eq(organizations.plan, plan))
    const isKept = dailyBackupDays(plan) > 0 ? isLatest : sql`false`
    await db
      .update(backups)
      .set(removedAt(now()))
      .where(
        and(
          eq(backups.status, 'COMPLETED'),
          lt(backups.insertedAt, cutoff),
          inArray(backups.projectRef, ofPlan),
          not(isKept),
        ),
      )
  }
}

const DAY_MS = 86_400_000
const SHOWN_MS = 30 * DAY_MS
const PURGED_MAX = 1_000
const PORTIONS_MAX = 10

/** What is left of a backup is its row, which tells that there was one, and that for 30 days. */
async function purgeRemoved({ db, now }: SystemCtx): Promise<void> {
  const old = db
    .select({ id: backups.id })
    .from(backups)
    .where(lt(backups.removedAt, new Date(now().getTime() - SHOWN_MS)))
    .orderBy(backups.removedAt)
    .limit(PURGED_MAX)
  for (let portion = 0; portion < PORTIONS_MAX; portion++) {
    const purged = await db.delete(backups).where(inArray(backups.id, old)).returning({ id: backups.id })
    if (purged.length < PURGED_MAX) return
  }
}

/**
 * What belongs to a project that we do not know may be another installation's. A backup of a living project without any row is
 * kept: the control database was put back to a time before it.
 */
async function uselessAmong({ db }: SystemCtx, found: readonly Backup[]): Promise<Backup[]> {
  const refs = Array.from(new Set(found.map(({ ref }) => ref)))
  // No backup has the id 0, and no list of values may be empty.
  const ids = [0, ...found.map(({ id }) => id)]
  const [ours, rows] = await db.batch([
    db.select({ ref: projects.ref, removedAt: projects.removedAt }).from(projects).where(inArray(projects.ref, refs)),
    db
      .select({ id: backups.id, ref: backups.projectRef, status: backups.status })
      .from(backups)
      .where(inArray(backups.id, ids)),
  ])
  const projectOf = new Map(ours.map((project) => [project.ref, project]))
  const statusOf = new Map(rows.map(({ id, ref, status }) => [`${ref} ${id}`, status]))
  const isUseless = ({ ref, id }: Backup): boolean => {
    const project = projectOf.get(ref)
    if (!project) return false
    const status = statusOf.get(`${ref} ${id}`)
    return status ? status !== 'PENDING' && status !== 'COMPLETED' : project.removedAt !== null
  }
  return found.filter(isUseless)
}

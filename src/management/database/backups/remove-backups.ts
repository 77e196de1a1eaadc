import { and, eq, gt, inArray, lt, not, notExists, sql } from 'drizzle-orm'
import { alias } from 'drizzle-orm/pg-core'
import { PLANS } from '../../../config.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { type Backup, MOVE_BACKUP } from '../../../engine/backup.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { backups, organizations, projects, projectTasks } from '../../../model/tables/index.ts'
import { purgeInPortions } from '../../../platform/db/purge.ts'
import { describeError } from '../../../platform/http/log.ts'
import { RemovalsPaused } from '../../../platform/removals.ts'
import { isOpenTask } from '../../projects/projects/tasks.ts'
import { backupDaysKept, dailyBackupDays } from './backup-plan.ts'

export const removal = (at: Date) => ({ status: 'REMOVED' as const, removedAt: at })

/** Marks a project's backups as removed when its database is dropped. */
export async function markBackupsRemoved({ db, now }: SystemCtx, ref: string): Promise<void> {
  await db
    .update(backups)
    .set(removal(now()))
    .where(and(eq(backups.projectRef, ref), eq(backups.status, 'COMPLETED')))
}

const BATCH_MAX = 1_000
const REMOVED_MAX = 200

/** Removes failed and expired backups, and backups of removed projects. */
export async function removeOldBackups(ctx: SystemCtx): Promise<void> {
  await purgeRemoved(ctx)
  // Listing the backups takes a request to the bucket per project.
  if (!(await claimHourlyRun(ctx, 'old_backups'))) return
  await expireBackups(ctx)
  const found = await ctx.engine.backups.list()
  const old: Backup[] = []
  for (let at = 0; at < found.length && old.length < REMOVED_MAX; at += BATCH_MAX) {
    old.push(...(await selectRemovable(ctx, found.slice(at, at + BATCH_MAX))))
  }
  for (const backup of old.slice(0, REMOVED_MAX)) {
    const fence = async () => (await selectRemovable(ctx, [backup])).length > 0
    await ctx.engine.backups.remove(backup, fence).catch((error) => {
      if (error instanceof RemovalsPaused) throw error
      if (error instanceof Superseded) return
      ctx.log.error('backup_not_removed', { project: backup.ref, backup: backup.id, error: describeError(error) })
    })
  }
}

/** Expires old backups. Plans with daily backups keep the latest one at any age: the project may have been paused for long. */
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
    const expired = db
      .select({ id: backups.id })
      .from(backups)
      .where(
        and(
          eq(backups.status, sql`'COMPLETED'`),
          lt(backups.insertedAt, cutoff),
          inArray(backups.projectRef, ofPlan),
          not(isKept),
        ),
      )
      .limit(BATCH_MAX)
    const removeBatch = () =>
      db.update(backups).set(removal(now())).where(inArray(backups.id, expired)).returning({ id: backups.id })
    while ((await removeBatch()).length === BATCH_MAX);
  }
}

const DAY_MS = 86_400_000
const LISTED_MS = 30 * DAY_MS

/** Deletes the rows of removed backups after 30 days, during which they are still listed. */
async function purgeRemoved({ db, now }: SystemCtx): Promise<void> {
  const before = new Date(now().getTime() - LISTED_MS).toISOString()
  await purgeInPortions(
    db,
    (portion) =>
      sql`delete from backups where id in (select id from backups where removed_at < ${before} order by removed_at limit ${portion})`,
  )
}

/**
 * Selects backups that may be removed. A backup of an unknown project may belong to another installation and stays. So does
 * a backup without a row of an existing project: the control database may have been restored to a time before it. The backup of a
 * move never has a row, and stays while the project is being moved.
 */
async function selectRemovable({ db }: SystemCtx, found: readonly Backup[]): Promise<Backup[]> {
  const refs = Array.from(new Set(found.map(({ ref }) => ref)))
  const ids = found.map(({ id }) => id)
  const [known, rows, moves] = await db.batch([
    db.select({ ref: projects.ref, removedAt: projects.removedAt }).from(projects).where(inArray(projects.ref, refs)),
    db
      .select({ id: backups.id, ref: backups.projectRef, status: backups.status })
      .from(backups)
      .where(inArray(backups.id, ids)),
    db
      .select({ ref: projectTasks.projectRef })
      .from(projectTasks)
      .where(and(inArray(projectTasks.projectRef, refs), eq(projectTasks.kind, 'move'), isOpenTask)),
  ])
  const projectOf = new Map(known.map((project) => [project.ref, project]))
  const statusOf = new Map(rows.map(({ id, ref, status }) => [`${ref} ${id}`, status]))
  const moving = new Set(moves.map((move) => move.ref))
  const isRemovable = ({ ref, id }: Backup): boolean => {
    const project = projectOf.get(ref)
    if (!project) return false
    if (id === MOVE_BACKUP) return !moving.has(ref)
    const status = statusOf.get(`${ref} ${id}`)
    return status ? status !== 'PENDING' && status !== 'COMPLETED' : project.removedAt !== null
  }
  return found.filter(isRemovable)
}

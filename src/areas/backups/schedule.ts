import { and, asc, eq, lte, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import { mutate } from '../../db/mutate.ts'
import { organizations, projectSettings, projects } from '../../db/schema/index.ts'
import type { Ctx, SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { describeError } from '../../http/log.ts'
import { ACTIVE } from '../projects/values.ts'
import { type Settings, settingsIn } from '../settings/areas.ts'
import { readSettings, removeSettings, saveSettings, settingsOf } from '../settings/rows.ts'
import type { BackupSchedule } from './schema.ts'
import { requireBackups, startBackup } from './service.ts'

const AREA = 'backup_schedule'
type Schedule = NonNullable<Settings<typeof AREA>>

export async function getSchedule({ db }: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof BackupSchedule>> {
  const { value, updatedAt } = await readSettings(db, ref, AREA)
  if (!value || !updatedAt) throw new ApiError('not_found.backup_schedule')
  return { schedule_for: value.schedule_for, updated_at: updatedAt.toISOString() }
}

export async function updateSchedule(ctx: Ctx, { ref, organizationId }: ProjectAccess, scheduleFor: string) {
  requireBackups(ctx)
  const now = ctx.now()
  const value = { schedule_for: scheduleFor, due_at: nextAt(scheduleFor, now) }
  await mutate(ctx, async ({ tx, trace }) => {
    await saveSettings(tx, { ref, area: AREA, value, updatedAt: now })
    await trace({ action: 'backup_schedule.update', organizationId, projectRef: ref, detail: { scheduleFor } })
  })
  return { schedule_for: scheduleFor, updated_at: now.toISOString() }
}

export async function removeSchedule(ctx: Ctx, { ref, organizationId }: ProjectAccess): Promise<void> {
  await mutate(ctx, async ({ tx, trace }) => {
    const removed = await removeSettings(tx, ref, AREA)
    if (removed) await trace({ action: 'backup_schedule.delete', organizationId, projectRef: ref })
  })
}

const DAY_MS = 24 * 60 * 60 * 1000

/** The first moment after `now` at this time of a day in UTC. */
function nextAt(timeOfDay: string, now: Date): string {
  const [hours = 0, minutes = 0, seconds = 0] = timeOfDay.split(':').map(Number)
  const ofDayMs = Math.floor(((hours * 60 + minutes) * 60 + seconds) * 1000)
  const today = Math.floor(now.getTime() / DAY_MS) * DAY_MS + ofDayMs
  return new Date(today > now.getTime() ? today : today + DAY_MS).toISOString()
}

const DUE_MAX = 100
const BUSY_MS = 5 * 60 * 1000

const DUE_AT = sql`${projectSettings.value} ->> 'due_at'`

/** A day that was missed, as nobody looked at the time, is made up for by one backup. */
export async function runScheduledBackups(ctx: SystemCtx): Promise<void> {
  const due = await ctx.db
    .select({ project: projects, organizationSlug: organizations.slug, value: projectSettings.value })
    .from(projectSettings)
    .innerJoin(projects, eq(projects.ref, projectSettings.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    // As text, so that the planner sees what the partial index is for.
    .where(and(eq(projectSettings.area, sql`'backup_schedule'`), lte(DUE_AT, ctx.now().toISOString())))
    .orderBy(asc(DUE_AT))
    .limit(DUE_MAX)
  for (const { project, organizationSlug, value } of due) {
    const schedule = settingsIn(AREA, value)
    if (!schedule) continue
    await runDue(ctx, { ...project, organizationSlug }, schedule).catch((error) =>
      ctx.log.error('scheduled_backup_failed', { project: project.ref, error: describeError(error) }),
    )
  }
}

type DueProject = typeof projects.$inferSelect & { organizationSlug: string }

async function runDue(ctx: SystemCtx, project: DueProject, schedule: Schedule): Promise<void> {
  const dueAt = nextAt(schedule.schedule_for, ctx.now())
  const rests = project.removedAt !== null || !ACTIVE.includes(project.status)
  try {
    await mutate(ctx, async (mutation) => {
      const taken = await mutation.tx
        .update(projectSettings)
        .set(moved(dueAt))
        .where(stillDue(project, schedule))
        .returning()
      if (taken.length > 0 && !rests) await startBackup(ctx, mutation, project, { kind: 'scheduled' })
    })
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 'conflict.project_status')) throw error
    const later = new Date(ctx.now().getTime() + BUSY_MS).toISOString()
    await ctx.db.update(projectSettings).set(moved(later)).where(stillDue(project, schedule))
  }
}

const moved = (dueAt: string) => ({
  value: sql`${projectSettings.value} || ${JSON.stringify({ due_at: dueAt })}::jsonb`,
})

/** Whoever moves the moment on makes the backup; to the others it is no longer due. */
const stillDue = ({ ref }: DueProject, { due_at: dueAt }: Schedule) => and(settingsOf(ref, AREA), eq(DUE_AT, dueAt))

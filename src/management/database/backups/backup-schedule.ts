import { and, asc, eq, getTableColumns, inArray, lte, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { organizations, type ProjectStatus, projectSettings, projects } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { describeError } from '../../../platform/http/log.ts'
import { requireOrganizationPlan } from '../../account/organizations/plan-features.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { isSettingsRow, readSettings, saveSettings } from '../../projects/settings/read-settings.ts'
import { parseSettings, type Settings } from '../../projects/settings/setting-areas.ts'
import { dailyBackupDays, PLANS_WITH_DAILY_BACKUPS } from './backup-plan.ts'
import type { BackupSchedule } from './schema.ts'
import { requireBackups, startBackup } from './service.ts'

const AREA = 'backup_schedule'
type Schedule = Extract<NonNullable<Settings<typeof AREA>>, { due_at: string }>

export async function getSchedule(ctx: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof BackupSchedule>> {
  const schedule = await scheduleOf(ctx, ref)
  if (!schedule) throw new ApiError('not_found.backup_schedule')
  return { schedule_for: schedule.scheduleFor, updated_at: schedule.updatedAt.toISOString() }
}

/** Returns the schedule that was set, or that of the plan: the time of day at which the project was created. */
async function scheduleOf(
  { db, engine }: Ctx,
  ref: string,
): Promise<{ scheduleFor: string; updatedAt: Date } | undefined> {
  const [project] = await db
    .select({ ...getTableColumns(projects), plan: organizations.plan })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(eq(projects.ref, ref))
  if (!project || !engine.capabilities.backups || dailyBackupDays(project.plan) === 0) return undefined
  const { value, updatedAt } = await readSettings(db, ref, AREA)
  if (value && updatedAt)
    return value.schedule_for === null ? undefined : { scheduleFor: value.schedule_for, updatedAt }
  if (project.parentRef !== null) return undefined
  return { scheduleFor: project.createdAt.toISOString().slice(11, 19), updatedAt: project.createdAt }
}

export async function updateSchedule(ctx: Ctx, project: ProjectAccess, scheduleFor: string) {
  requireBackups(ctx)
  await requireOrganizationPlan(ctx.db, project.organizationId, 'backup_schedule')
  const now = ctx.now()
  const value = { schedule_for: scheduleFor, due_at: nextAt(scheduleFor, now) }
  await changeProject(ctx, project, async ({ tx, record }) => {
    await saveSettings(tx, { ref: project.ref, area: AREA, value, updatedAt: now })
    await record('backup_schedule.update', { scheduleFor })
  })
  return { schedule_for: scheduleFor, updated_at: now.toISOString() }
}

/** Turns daily backups off. The row stays: without one, the schedule of the plan would apply. */
export async function removeSchedule(ctx: Ctx, project: ProjectAccess): Promise<void> {
  const { ref } = project
  const wasOn = (await scheduleOf(ctx, ref)) !== undefined
  // If nothing was on, no row is stored: it would turn off the daily backups of a later plan.
  if (!wasOn && !(await readSettings(ctx.db, ref, AREA)).value) return
  const value = { schedule_for: null, due_at: null }
  await changeProject(ctx, project, async ({ tx, record }) => {
    await saveSettings(tx, { ref, area: AREA, value, updatedAt: ctx.now() })
    if (wasOn) await record('backup_schedule.delete')
  })
}

const DAY_MS = 24 * 60 * 60 * 1000

/** Returns the next time after `now` that has this time of day in UTC. */
function nextAt(timeOfDay: string, now: Date): string {
  const [hours = 0, minutes = 0, seconds = 0] = timeOfDay.split(':').map(Number)
  const timeOfDayMs = Math.floor(((hours * 60 + minutes) * 60 + seconds) * 1000)
  const today = Math.floor(now.getTime() / DAY_MS) * DAY_MS + timeOfDayMs
  return new Date(today > now.getTime() ? today : today + DAY_MS).toISOString()
}

const DUE_MAX = 100
const BUSY_MS = 5 * 60 * 1000

const DUE_AT = sql`${projectSettings.value} ->> 'due_at'`

/** Creates the schedule of the plan for projects that have none. The first backup is due at the next creation time of day. */
export async function scheduleDailyBackups(ctx: SystemCtx): Promise<void> {
  if (!ctx.engine.capabilities.backups || !(await claimHourlyRun(ctx, 'backup_schedules'))) return
  const now = ctx.now().toISOString()
  const due = sql`${projects.createdAt} + make_interval(days => 1 + floor(extract(epoch from ${now}::timestamptz - ${projects.createdAt}) / 86400)::int)`
  const utc = (at: SQL | typeof projects.createdAt, format: string) =>
    sql`to_char((${at}) at time zone 'UTC', ${sql.raw(`'${format}'`)})`
  await ctx.db.execute(sql`
    insert into ${projectSettings} (project_ref, area, value, updated_at)
    select ${projects.ref}, ${AREA}::text, jsonb_build_object('schedule_for', ${utc(sql`${projects.createdAt}`, 'HH24:MI:SS')},
      'due_at', ${utc(due, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')}), ${projects.createdAt}
    from ${projects} join ${organizations} on ${organizations.id} = ${projects.organizationId}
    where ${projects.removedAt} is null and ${projects.parentRef} is null
      and ${inArray(organizations.plan, PLANS_WITH_DAILY_BACKUPS)}
    on conflict do nothing`)
}

/** Runs the backups that are due. A project that missed several days gets a single backup. */
export async function runScheduledBackups(ctx: SystemCtx): Promise<void> {
  const due = await ctx.db
    .select({ project: projects, organization: organizations, value: projectSettings.value })
    .from(projectSettings)
    .innerJoin(projects, eq(projects.ref, projectSettings.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    // A literal and not a parameter, so that the planner can use the partial index.
    .where(and(eq(projectSettings.area, sql`'backup_schedule'`), lte(DUE_AT, ctx.now().toISOString())))
    .orderBy(asc(DUE_AT))
    .limit(DUE_MAX)
  for (const { project, organization, value } of due) {
    const schedule = parseSettings(AREA, value)
    if (!schedule?.due_at) continue
    await runDue(ctx, { ...project, organizationSlug: organization.slug, plan: organization.plan }, schedule).catch(
      (error) => ctx.log.error('scheduled_backup_failed', { project: project.ref, error: describeError(error) }),
    )
  }
}

/** Statuses in which a project gets no backup that day. In all others it is active, or soon will be. */
const OUT_OF_SERVICE: readonly ProjectStatus[] = [
  'INACTIVE',
  'GOING_DOWN',
  'INIT_FAILED',
  'PAUSE_FAILED',
  'RESTORE_FAILED',
]

type DueProject = typeof projects.$inferSelect & {
  organizationSlug: string
  plan: typeof organizations.$inferSelect.plan
}

async function runDue(ctx: SystemCtx, project: DueProject, schedule: Schedule): Promise<void> {
  const dueAt = nextAt(schedule.schedule_for, ctx.now())
  const isInService = project.removedAt === null && !OUT_OF_SERVICE.includes(project.status)
  const isBackedUp = isInService && dailyBackupDays(project.plan) > 0
  try {
    await mutate(ctx, async (mutation) => {
      const claimed = await mutation.tx
        .update(projectSettings)
        .set(withDueAt(dueAt))
        .where(isStillDue(project, schedule))
        .returning()
      if (claimed.length > 0 && isBackedUp) await startBackup(ctx, mutation, project, { kind: 'scheduled' })
    })
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 'conflict.project_status')) throw error
    const later = new Date(ctx.now().getTime() + BUSY_MS).toISOString()
    await ctx.db.update(projectSettings).set(withDueAt(later)).where(isStillDue(project, schedule))
  }
}

const withDueAt = (dueAt: string) => ({
  value: sql`${projectSettings.value} || ${JSON.stringify({ due_at: dueAt })}::jsonb`,
})

/** The run that updates the due time starts the backup; for concurrent runs it is no longer due. */
const isStillDue = ({ ref }: DueProject, { due_at: dueAt }: Schedule) =>
  and(isSettingsRow(ref, AREA), eq(DUE_AT, dueAt))

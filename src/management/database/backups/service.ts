import { and, desc, eq, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { EngineRefusal, EngineUnavailable } from '../../../engine/engine-errors.ts'
import {
  backups,
  type ProjectStatus,
  type TaskInput,
  type TaskKind,
  temporaryLogins,
} from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireNoReadingRun } from '../../branching/branches/parent-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { changeStatus, requireStatus } from '../../projects/projects/status.ts'
import { startTask } from '../../projects/projects/tasks.ts'
import { expireLogins } from '../database-access/temporary-logins.ts'
import type { BackupList, RestorePoint } from './schema.ts'

type Row = typeof backups.$inferSelect
type Project = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>

const LISTED_MAX = 100
const NAME_TAKEN = 'backups_restore_point_once'

export async function listBackups(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof BackupList>> {
  const { db, engine } = ctx
  const { ref, region } = project
  const window = engine.pointInTime && (await windowOf(ctx, project).catch(ignoreNoHistory))
  const rows = await db
    .select()
    .from(backups)
    .where(eq(backups.projectRef, ref))
    // Backups that can be restored or are in progress come before removed ones, so that the limit never cuts them off.
    .orderBy(desc(sql`${backups.status} in ('COMPLETED', 'PENDING')`), desc(backups.insertedAt), desc(backups.id))
    .limit(LISTED_MAX)
  rows.sort((a, b) => b.insertedAt.getTime() - a.insertedAt.getTime() || b.id - a.id)
  const restorable = rows.filter(({ status }) => status === 'COMPLETED').map(({ insertedAt }) => insertedAt.getTime())
  // Physical: data files and WAL, not an SQL dump.
  const isPhysical = engine.capabilities.backups && engine.pointInTime !== undefined
  return {
    region,
    walg_enabled: isPhysical,
    pitr_enabled: window !== undefined,
    backups: rows.map(({ id, status, insertedAt }) => ({
      id,
      is_physical_backup: isPhysical,
      status,
      inserted_at: insertedAt.toISOString(),
    })),
    physical_backup_data: window ? bounds(window.earliest, window.latest) : boundsOf(restorable),
  }
}

const bounds = (earliest: number, latest: number) => ({
  earliest_physical_backup_date_unix: earliest,
  latest_physical_backup_date_unix: latest,
})

const boundsOf = (timesMs: readonly number[]) =>
  timesMs.length === 0 ? {} : bounds(toSeconds(Math.min(...timesMs)), toSeconds(Math.max(...timesMs)))

const toSeconds = (ms: number) => Math.floor(ms / 1000)

export function requireBackups({ engine }: Ctx): void {
  if (engine.capabilities.backups) return
  throw new ApiError('bad_request.driver', { detail: `the driver ${engine.name} does not support backups` })
}

export async function createRestorePoint(ctx: Ctx, project: ProjectAccess, name: string) {
  requireBackups(ctx)
  const row = await mutate(ctx, (mutation) => startBackup(ctx, mutation, project, { kind: 'restore_point', name }))
  return toRestorePoint(row)
}

export async function getRestorePoint({ db }: Ctx, { ref }: ProjectAccess, name: string | undefined) {
  const [row] = await selectRestorePoint(db, ref, name)
  if (!row) throw new ApiError('not_found.backup')
  return toRestorePoint(row)
}

/** Selects the latest restore point, because a name can be used again after its restore point was removed. */
const selectRestorePoint = (db: Pick<SystemCtx['db'], 'select'>, ref: string, name: string | undefined) =>
  db
    .select()
    .from(backups)
    .where(
      and(
        eq(backups.projectRef, ref),
        eq(backups.kind, 'restore_point'),
        name === undefined ? undefined : eq(backups.name, name),
      ),
    )
    .orderBy(desc(backups.insertedAt), desc(backups.id))
    .limit(1)

const RESTORE_POINT_STATUS = {
  PENDING: 'PENDING',
  COMPLETED: 'AVAILABLE',
  FAILED: 'FAILED',
  REMOVED: 'REMOVED',
  ARCHIVED: 'REMOVED',
  CANCELLED: 'REMOVED',
} as const

const toRestorePoint = ({ name, status, completedAt }: Row): z.input<typeof RestorePoint> => ({
  name: name ?? '',
  status: RESTORE_POINT_STATUS[status],
  completed_on: completedAt?.toISOString() ?? null,
})

type NewBackup = { kind: 'restore_point'; name: string } | { kind: 'scheduled' }

/** Starts a backup. Fails while another task of the project is running. */
export async function startBackup(
  ctx: SystemCtx,
  mutation: Mutation,
  project: Project,
  backup: NewBackup,
): Promise<Row> {
  const { ref, organizationId: id, organizationSlug: slug } = project
  await requireStatus(mutation, ref)
  const row = requireRow(
    await mutation.tx
      .insert(backups)
      .values({ ...backup, projectRef: ref, status: 'PENDING', insertedAt: ctx.now() })
      .returning()
      .catch((error) => rejectTakenName(error)),
  )
  await startTask(ctx, mutation, { ref, kind: 'backup', input: { backupId: row.id } })
  const organization = { id, slug }
  await mutation.publish({ type: 'v1.project.backup.started', organization, projectRef: ref, fields: {} })
  const detail = { backup: row.id, kind: backup.kind }
  await mutation.trace({ action: 'backup.create', organizationId: id, projectRef: ref, detail })
  return row
}

function rejectTakenName(error: unknown): never {
  if (uniqueViolation(error) !== NAME_TAKEN) throw error
  throw new ApiError('conflict.restore_point', { cause: error })
}

export async function restoreBackup(ctx: Ctx, project: ProjectAccess, id: number): Promise<void> {
  const [row] = await ctx.db
    .select()
    .from(backups)
    .where(and(eq(backups.id, id), eq(backups.projectRef, project.ref)))
  await restore(ctx, project, row)
}

export async function restoreToPoint(ctx: Ctx, project: ProjectAccess, name: string): Promise<void> {
  const [row] = await selectRestorePoint(ctx.db, project.ref, name)
  await restore(ctx, project, row)
}

async function restore(ctx: Ctx, project: ProjectAccess, backup: Row | undefined): Promise<void> {
  if (!backup) throw new ApiError('not_found.backup')
  if (backup.status !== 'COMPLETED') {
    throw new ApiError('conflict.backup_status', {
      detail: `only a COMPLETED backup can be restored; this one is ${backup.status}`,
    })
  }
  await startRestore(ctx, project, { kind: 'restore_backup', input: { backupId: backup.id } })
}

export async function restoreToMoment(ctx: Ctx, project: ProjectAccess, targetUnix: number): Promise<void> {
  const { earliest, latest } = await windowOf(ctx, project)
  if (targetUnix < earliest || targetUnix > latest) {
    const message = `must be from ${earliest} to ${latest}, the recovery window of the database`
    throw invalidField('body.recovery_time_target_unix', message, 'custom')
  }
  await startRestore(ctx, project, { kind: 'restore_moment', input: { targetUnix } })
}

/** Ignores that a project has no recovery window: a driver may support point-in-time recovery for some projects only. */
function ignoreNoHistory(error: unknown): undefined {
  if (!(error instanceof ApiError && error.code === 'bad_request.pitr')) throw error
}

/** Returns the recovery window in whole seconds that lie within it. */
async function windowOf({ engine, now }: Ctx, { ref }: ProjectAccess) {
  const noRecovery = (hint: string) => new ApiError('bad_request.pitr', { extra: { driver: engine.name, hint } })
  if (!engine.pointInTime) throw noRecovery(`the driver ${engine.name} has no point-in-time recovery here`)
  const { earliest, latest } = await engine.pointInTime.window(ref, now()).catch((error) => {
    if (error instanceof EngineRefusal) throw noRecovery(error.message)
    if (!(error instanceof EngineUnavailable)) throw error
    throw new ApiError('service_unavailable.project_database', { cause: error })
  })
  const window = { earliest: Math.ceil(earliest.getTime() / 1000), latest: toSeconds(latest.getTime()) }
  // The window is shorter than a second just after the first backup.
  if (window.earliest > window.latest) throw noRecovery('the first backup was made just now: try again in a second')
  return window
}

const RESTORABLE: readonly ProjectStatus[] = [...ACTIVE, 'RESTORE_FAILED']

/** Starts a restore and expires all temporary logins: the restored database may not have them. */
async function startRestore(
  ctx: Ctx,
  project: ProjectAccess,
  { kind, input }: { kind: TaskKind; input: TaskInput },
): Promise<void> {
  const { ref } = project
  await mutate(ctx, async (mutation) => {
    const before = await requireStatus(mutation, ref, RESTORABLE)
    await requireNoReadingRun(mutation, ref)
    await changeStatus(mutation, project, { before, status: 'RESTORING' })
    await startTask(ctx, mutation, { ref, kind, input: { ...input, statusBefore: before } })
    await expireLogins(mutation.tx, ctx.now(), eq(temporaryLogins.projectRef, ref))
    const { backupId, targetUnix } = input
    const detail = backupId ? { backup: backupId } : { targetUnix }
    await mutation.trace({ project, action: 'backup.restore', detail })
  })
}

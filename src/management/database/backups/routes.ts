import { del, empty, get, patch, post } from '../../kernel/route.ts'
import { getSchedule, removeSchedule, updateSchedule } from './backup-schedule.ts'
import {
  BackupList,
  BackupSchedule,
  NamedRestorePoint,
  RestoreBackup,
  RestorePoint,
  RestorePointInTime,
  RestorePointQuery,
  UpdateBackupSchedule,
} from './schema.ts'
import {
  createRestorePoint,
  getRestorePoint,
  listBackups,
  restoreBackup,
  restoreToMoment,
  restoreToPoint,
} from './service.ts'

const RESTORE_ERRORS = ['not_found.backup', 'conflict.backup_status', 'conflict.project_status'] as const
const REPLACES = 'What was written since then is lost, and sessions end.'

export const backupRoutes = [
  get(
    '/v1/projects/{ref}/database/backups',
    {
      id: 'v1-list-all-backups',
      summary: 'List the backups of a database, the latest first',
      scope: 'database:read',
      returns: BackupList,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project }) => listBackups(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/database/backups/restore',
    {
      id: 'v1-restore-a-backup',
      summary: 'Put a backup in the place of a database',
      description: REPLACES,
      scope: 'database:write',
      body: RestoreBackup,
      returns: empty,
      status: 201,
      errors: RESTORE_ERRORS,
    },
    ({ ctx, project, body }) => restoreBackup(ctx, project, body.id),
  ),

  post(
    '/v1/projects/{ref}/database/backups/restore-pitr',
    {
      id: 'v1-restore-pitr-backup',
      summary: 'Put a database back to a point in time',
      description: `${REPLACES} Refused where the driver has no point-in-time recovery.`,
      scope: 'database:write',
      body: RestorePointInTime,
      returns: empty,
      status: 201,
      errors: ['bad_request.pitr', 'conflict.project_status', 'service_unavailable.project_database'],
    },
    ({ ctx, project, body }) => restoreToMoment(ctx, project, body.recovery_time_target_unix),
  ),

  post(
    '/v1/projects/{ref}/database/backups/restore-point',
    {
      id: 'v1-create-restore-point',
      summary: 'Make a backup under a name',
      scope: 'database:write',
      body: NamedRestorePoint,
      returns: RestorePoint,
      status: 201,
      errors: ['bad_request.driver', 'conflict.restore_point', 'conflict.project_status'],
    },
    ({ ctx, project, body }) => createRestorePoint(ctx, project, body.name),
  ),

  get(
    '/v1/projects/{ref}/database/backups/restore-point',
    {
      id: 'v1-get-restore-point',
      summary: 'Get the restore point of a name, or the latest one',
      scope: 'database:read',
      query: RestorePointQuery,
      returns: RestorePoint,
      errors: ['not_found.backup'],
    },
    ({ ctx, project, query: { name } }) => getRestorePoint(ctx, project, name),
  ),

  post(
    '/v1/projects/{ref}/database/backups/undo',
    {
      id: 'v1-undo',
      summary: 'Put a database back to a restore point',
      description: REPLACES,
      scope: 'database:write',
      body: NamedRestorePoint,
      returns: empty,
      status: 201,
      errors: RESTORE_ERRORS,
    },
    ({ ctx, project, body }) => restoreToPoint(ctx, project, body.name),
  ),

  get(
    '/v1/projects/{ref}/database/backups/schedule',
    {
      id: 'v1-get-backup-schedule',
      summary: 'Get when a database is backed up each day',
      description:
        'At the time of day at which the project was created, unless another was set; never on the plan `free`, nor for a branch.',
      scope: 'database:read',
      returns: BackupSchedule,
      errors: ['not_found.backup_schedule'],
    },
    ({ ctx, project }) => getSchedule(ctx, project),
  ),

  patch(
    '/v1/projects/{ref}/database/backups/schedule',
    {
      id: 'v1-update-backup-schedule',
      summary: 'Back a database up each day at this time',
      description: 'Backups are kept for 7 days on the plan `pro`, 14 on `team` and 30 on `enterprise`.',
      scope: 'database:write',
      body: UpdateBackupSchedule,
      returns: BackupSchedule,
      errors: ['bad_request.driver', 'payment_required.backup_schedule'],
    },
    ({ ctx, project, body }) => updateSchedule(ctx, project, body.schedule_for),
  ),

  del(
    '/v1/projects/{ref}/database/backups/schedule',
    {
      id: 'v1-delete-backup-schedule',
      summary: 'Make no more backups by themselves',
      description:
        'Those that were made stay as long as the plan keeps backups. Without a schedule there is nothing to do.',
      scope: 'database:write',
      returns: empty,
    },
    ({ ctx, project }) => removeSchedule(ctx, project),
  ),
]

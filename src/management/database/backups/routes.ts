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
const LOSS_WARNING = 'Later changes are lost, and all sessions end.'

export const backupRoutes = [
  get('/v1/projects/{ref}/database/backups', {
    id: 'v1-list-all-backups',
    summary: 'List backups, latest first',
    scope: 'database:read',
    returns: BackupList,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => listBackups(ctx, project),
  }),

  post('/v1/projects/{ref}/database/backups/restore', {
    id: 'v1-restore-a-backup',
    summary: 'Restore a backup',
    description: LOSS_WARNING,
    scope: 'database:write',
    body: RestoreBackup,
    returns: empty,
    status: 201,
    errors: RESTORE_ERRORS,
    handle: ({ ctx, project, body }) => restoreBackup(ctx, project, body.id),
  }),

  post('/v1/projects/{ref}/database/backups/restore-pitr', {
    id: 'v1-restore-pitr-backup',
    summary: 'Restore a database to a point in time',
    description: `${LOSS_WARNING} Not available if the driver has no point-in-time recovery.`,
    scope: 'database:write',
    body: RestorePointInTime,
    returns: empty,
    status: 201,
    errors: ['bad_request.pitr', 'conflict.project_status', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => restoreToMoment(ctx, project, body.recovery_time_target_unix),
  }),

  post('/v1/projects/{ref}/database/backups/restore-point', {
    id: 'v1-create-restore-point',
    summary: 'Create a restore point',
    scope: 'database:write',
    body: NamedRestorePoint,
    returns: RestorePoint,
    status: 201,
    errors: ['bad_request.driver', 'conflict.restore_point', 'conflict.project_status'],
    handle: ({ ctx, project, body }) => createRestorePoint(ctx, project, body.name),
  }),

  get('/v1/projects/{ref}/database/backups/restore-point', {
    id: 'v1-get-restore-point',
    summary: 'Get a restore point by name, or the latest one',
    scope: 'database:read',
    query: RestorePointQuery,
    returns: RestorePoint,
    errors: ['not_found.backup'],
    handle: ({ ctx, project, query: { name } }) => getRestorePoint(ctx, project, name),
  }),

  post('/v1/projects/{ref}/database/backups/undo', {
    id: 'v1-undo',
    summary: 'Restore a database to a restore point',
    description: LOSS_WARNING,
    scope: 'database:write',
    body: NamedRestorePoint,
    returns: empty,
    status: 201,
    errors: RESTORE_ERRORS,
    handle: ({ ctx, project, body }) => restoreToPoint(ctx, project, body.name),
  }),

  get('/v1/projects/{ref}/database/backups/schedule', {
    id: 'v1-get-backup-schedule',
    summary: 'Get the backup schedule',
    description:
      'By default, daily backups run at the time of day at which the project was created. The plan `free` and branches have none.',
    scope: 'database:read',
    returns: BackupSchedule,
    errors: ['not_found.backup_schedule'],
    handle: ({ ctx, project }) => getSchedule(ctx, project),
  }),

  patch('/v1/projects/{ref}/database/backups/schedule', {
    id: 'v1-update-backup-schedule',
    summary: 'Update the backup schedule',
    description: 'Backups are kept for 7 days on the plan `pro`, 14 on `team` and 30 on `enterprise`.',
    scope: 'database:write',
    body: UpdateBackupSchedule,
    returns: BackupSchedule,
    errors: ['bad_request.driver', 'payment_required.backup_schedule'],
    handle: ({ ctx, project, body }) => updateSchedule(ctx, project, body.schedule_for),
  }),

  del('/v1/projects/{ref}/database/backups/schedule', {
    id: 'v1-delete-backup-schedule',
    summary: 'Delete the backup schedule',
    description:
      'No further backups are scheduled. Existing backups stay as long as the plan keeps them. Succeeds if there is no schedule.',
    scope: 'database:write',
    returns: empty,
    handle: ({ ctx, project }) => removeSchedule(ctx, project),
  }),
]

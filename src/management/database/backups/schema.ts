import * as z from 'zod'
import { BACKUP_STATUSES } from '../../../model/tables/index.ts'
import { Name } from '../../../platform/http/common-values.ts'

export const BackupList = z
  .object({
    region: z.string(),
    walg_enabled: z.boolean(),
    pitr_enabled: z.boolean(),
    backups: z.array(
      z.object({
        id: z.int(),
        is_physical_backup: z.boolean(),
        status: z.enum(BACKUP_STATUSES),
        inserted_at: z.iso.datetime(),
      }),
    ),
    physical_backup_data: z.object({
      earliest_physical_backup_date_unix: z.int().optional(),
      latest_physical_backup_date_unix: z.int().optional(),
    }),
  })
  .meta({ id: 'BackupList' })

export const RestoreBackup = z.object({ id: z.int().min(1) }).meta({ id: 'RestoreBackup' })

export const RestorePointInTime = z
  .object({ recovery_time_target_unix: z.int().min(0) })
  .meta({ id: 'RestorePointInTime' })

const RestorePointName = Name.max(20)

export const NamedRestorePoint = z.object({ name: RestorePointName }).meta({ id: 'NamedRestorePoint' })
export const RestorePointQuery = z.object({ name: RestorePointName.optional() })

export const RestorePoint = z
  .object({
    name: z.string(),
    status: z.enum(['AVAILABLE', 'PENDING', 'REMOVED', 'FAILED']),
    completed_on: z.iso.datetime().nullable(),
  })
  .meta({ id: 'RestorePoint' })

const TimeOfDay = z
  .string()
  .regex(/^(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?$/, 'must be a time of day such as 04:30')
  .meta({ description: 'Time of day in UTC', example: '04:30' })

export const UpdateBackupSchedule = z.object({ schedule_for: TimeOfDay }).meta({ id: 'UpdateBackupSchedule' })

export const BackupSchedule = z
  .object({ schedule_for: z.string(), updated_at: z.iso.datetime() })
  .meta({ id: 'BackupSchedule' })

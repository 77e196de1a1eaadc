import * as z from 'zod'
import { RELEASE_CHANNELS } from '../../../model/tables/index.ts'
import { Text } from '../../../platform/http/common-values.ts'

/** Error codes that clients know, in the order of the phases. */
export const UPGRADE_ERRORS = {
  launch: '1_upgraded_instance_launch_failed',
  copy: '5_data_upgrade_completion_failed',
  complete: '8_upgrade_completion_failed',
  switch: '7_volume_attachment_to_upgraded_instance_failed',
  backup: '9_post_physical_backup_failed',
} as const

export const PROGRESS = {
  requested: '0_requested',
  launch: '1_started',
  copy: '5_initiated_data_upgrade',
  complete: '6_completed_data_upgrade',
  switch: '8_attached_volume_to_upgraded_instance',
  upgraded: '9_completed_upgrade',
  done: '10_completed_post_physical_backup',
} as const

export const UpgradeEligibility = z
  .object({
    eligible: z.boolean(),
    current_app_version: z.string(),
    current_app_version_release_channel: z.enum(RELEASE_CHANNELS),
    latest_app_version: z.string(),
    target_upgrade_versions: z.array(
      z.object({ postgres_version: z.string(), release_channel: z.enum(RELEASE_CHANNELS), app_version: z.string() }),
    ),
    duration_estimate_hours: z.number(),
    legacy_auth_custom_roles: z.array(z.string()),
    objects_to_be_dropped: z.array(z.string()).meta({ deprecated: true }),
    unsupported_extensions: z.array(z.string()).meta({ deprecated: true }),
    user_defined_objects_in_internal_schemas: z.array(z.string()).meta({ deprecated: true }),
    validation_errors: z.array(z.looseObject({ type: z.string() })),
    warnings: z.array(z.object({ type: z.string() })),
  })
  .meta({ id: 'UpgradeEligibility' })

export const UpgradePostgres = z
  .object({
    target_version: Text.min(1)
      .max(64)
      .meta({ description: 'A version that the eligibility lists, such as 18 or 18.4' }),
    release_channel: z.enum(RELEASE_CHANNELS).optional(),
  })
  .meta({ id: 'UpgradePostgres' })

export const UpgradeStarted = z.object({ tracking_id: z.string() }).meta({ id: 'UpgradeStarted' })

export const UpgradeStatusQuery = z.object({ tracking_id: Text.max(64).optional() })

export const UpgradeStatus = z
  .object({
    databaseUpgradeStatus: z
      .object({
        initiated_at: z.string(),
        latest_status_at: z.string(),
        target_version: z.string(),
        error: z.enum(Object.values(UPGRADE_ERRORS)).optional(),
        progress: z.enum(Object.values(PROGRESS)).optional(),
        status: z.number().meta({ description: '0 while the upgrade runs, 1 when it is done, 2 when it has failed' }),
      })
      .nullable(),
  })
  .meta({ id: 'UpgradeStatus' })

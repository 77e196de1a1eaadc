import * as z from 'zod'

/** The maximum of each numeric setting. */
const REALTIME_MAX = {
  connection_pool: 100,
  postgres_changes_pool: 100,
  max_concurrent_users: 300_000,
  max_events_per_second: 50_000,
  max_bytes_per_second: 10_000_000,
  max_channels_per_client: 10_000,
  max_joins_per_second: 5_000,
  max_presence_events_per_second: 5_000,
  max_payload_size_in_kb: 10_000,
} as const
type Numbers = keyof typeof REALTIME_MAX

const numbers = Object.fromEntries(
  Object.entries(REALTIME_MAX).map(([name, max]) => [name, z.int().min(1).max(max)]),
) as Record<Numbers, z.ZodInt>

export const UpdateRealtimeConfig = z
  .object({ private_only: z.boolean(), ...numbers, suspend: z.boolean(), presence_enabled: z.boolean() })
  .partial()
  .meta({ id: 'UpdateRealtimeConfig' })

/** The stored settings, without those that were never set. */
export const RealtimeSettings = UpdateRealtimeConfig.meta({ id: 'RealtimeSettings' })

const nullable = Object.fromEntries(
  Object.entries(numbers).map(([name, schema]) => [name, schema.nullable()]),
) as Record<Numbers, z.ZodNullable<z.ZodInt>>

export const RealtimeConfig = z
  .object({
    private_only: z.boolean().nullable(),
    ...nullable,
    suspend: z.boolean().nullable(),
    presence_enabled: z.boolean(),
    admin_suspended_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'RealtimeConfig', description: 'Settings that were never set are null' })

import * as z from 'zod'
import type { SettingArea } from '../../db/schema/index.ts'
import { Kept } from '../auth-config/kept.ts'
import { PoolerSettings, PostgresConfig } from '../database-settings/schema.ts'
import { POSTGREST_DEFAULTS, PostgrestConfig } from '../postgrest/schema.ts'
import { RealtimeSettings } from '../realtime/schema.ts'

/** What a project's row of each area holds, and what holds where there is no row. */
const AREAS = {
  postgres: PostgresConfig.default({}),
  pooler: PoolerSettings.default({ default_pool_size: null, pool_mode: 'session' }),
  readonly: z
    .object({
      enabled: z.boolean(),
      /** What for: its size, as long as it is too large, or the operator's word, until he takes it back. */
      by: z.enum(['size', 'operator']),
      /** ISO 8601. */
      overrideUntil: z.string().optional(),
      /** The database was told, so that it must be told when the mode ends. */
      applied: z.boolean(),
    })
    .default({ enabled: false, by: 'size', applied: false }),
  ssl: z.object({ database: z.boolean() }).default({ database: false }),
  disk: z.object({ size_gb: z.int() }).default({ size_gb: 8 }),
  auth: Kept.default({ values: {}, secrets: {} }),
  postgrest: PostgrestConfig.default(POSTGREST_DEFAULTS),
  realtime: RealtimeSettings.default({}),
  /** When the next backup is due in ISO 8601, whose text is in the order of time. */
  backup_schedule: z.object({ schedule_for: z.string(), due_at: z.string() }).optional(),
  branching: z.object({ enabled: z.boolean() }).default({ enabled: true }),
  jit: z.object({ state: z.enum(['enabled', 'disabled']) }).default({ state: 'disabled' }),
  legacy_api_keys: z.object({ enabled: z.boolean() }).default({ enabled: true }),
  pgsodium: z.object({ sealed_root_key: z.string() }).optional(),
} satisfies Record<SettingArea, z.ZodType>

export type Area = keyof typeof AREAS
export type Settings<A extends Area> = z.output<(typeof AREAS)[A]>

/** A stored value, or what holds without any. */
export const settingsIn = <A extends Area>(area: A, value: unknown): Settings<A> =>
  // The schema of the area is what the type is made of.
  AREAS[area].parse(value ?? undefined) as Settings<A>

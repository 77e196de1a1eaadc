import * as z from 'zod'
import type { SettingArea } from '../../../model/tables/index.ts'
import { STORAGE_DEFAULTS } from '../../../services/gateway/open-project.ts'
import { PoolerSettings, PostgresConfig } from '../../database/database-settings/schema.ts'
import { Kept, toAuthConfig } from '../../service-config/auth-config/stored-config.ts'
import { POSTGREST_DEFAULTS, PostgrestConfig } from '../../service-config/postgrest/schema.ts'
import { RealtimeSettings } from '../../service-config/realtime/schema.ts'

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
  /** With spaces between; all of a kind are let in where it says so of the whole net. What was set before is told beside. */
  network: z
    .object({ v4: z.string(), v6: z.string(), old_v4: z.string().optional(), old_v6: z.string().optional() })
    .default({ v4: '0.0.0.0/0', v6: '::/0' }),
  disk: z.object({ size_gb: z.int() }).default({ size_gb: 8 }),
  auth: Kept.default({ values: {}, secrets: {} }),
  postgrest: PostgrestConfig.default(POSTGREST_DEFAULTS),
  realtime: RealtimeSettings.extend({ presence_enabled: z.boolean().default(false) }).prefault({}),
  /**
   * When the next backup is due in ISO 8601, whose text is in the order of time; null where daily backups have been turned off.
   * Without a row the plan decides.
   */
  backup_schedule: z
    .union([
      z.object({ schedule_for: z.string(), due_at: z.string() }),
      z.object({ schedule_for: z.null(), due_at: z.null() }),
    ])
    .optional(),
  branching: z.object({ enabled: z.boolean() }).default({ enabled: true }),
  jit: z.object({ state: z.enum(['enabled', 'disabled']) }).default({ state: 'disabled' }),
  legacy_api_keys: z.object({ enabled: z.boolean() }).default({ enabled: true }),
  pgsodium: z.object({ sealed_root_key: z.string() }).optional(),
  /** In the project's own row, which whoever serves its storage reads anyway. */
  storage: z.object({ fileSizeLimit: z.int().default(STORAGE_DEFAULTS.fileSizeLimit) }).prefault({}),
} satisfies Record<SettingArea | 'storage', z.ZodType>

export type Area = keyof typeof AREAS
/** What a branch takes over from its parent. Read-only mode says how a database is and not how it was set up. */
export const INHERITED = [
  'postgres',
  'pooler',
  'ssl',
  'network',
  'disk',
  'auth',
  'postgrest',
  'realtime',
  'storage',
] as const
export type InheritedArea = (typeof INHERITED)[number]
export const isInherited = (area: Area): boolean => INHERITED.some((inherited) => inherited === area)

export type Settings<A extends Area> = z.output<(typeof AREAS)[A]>

/** A stored value, or what holds without any. */
export const settingsIn = <A extends Area>(area: A, value: unknown): Settings<A> =>
  // The schema of the area is what the type is made of.
  AREAS[area].parse(value ?? undefined) as Settings<A>

type Fields = Readonly<Record<string, unknown>>

/** The value by its fields, as their names are told. */
const fieldsOf = <A extends Area>(area: A, value: Settings<A>): Fields =>
  // The one area whose fields are kept in another form.
  area === 'auth' ? toAuthConfig(value as Settings<'auth'>) : { ...value }

export function changedFields<A extends Area>(area: A, before: Settings<A>, after: Settings<A>): string[] {
  const [old, now] = [fieldsOf(area, before), fieldsOf(area, after)]
  return Array.from(new Set([...Object.keys(old), ...Object.keys(now)])).filter((name) => old[name] !== now[name])
}

/** All of `theirs`, but for the fields that are the heir's own: these are as in `mine`, also where they are not there. */
export function mergeFields<T extends object>(mine: T, theirs: T, own: readonly string[]): Record<string, T[keyof T]> {
  const others = Object.entries(theirs).filter(([name]) => !own.includes(name))
  return Object.fromEntries([...others, ...Object.entries(mine).filter(([name]) => own.includes(name))])
}

import * as z from 'zod'
import type { SettingArea } from '../../../model/tables/index.ts'
import { STORAGE_DEFAULTS } from '../../../services/gateway/open-project.ts'
import { PoolerSettings, PostgresConfig } from '../../database/database-settings/schema.ts'
import { StoredAuthConfig, toAuthConfig } from '../../service-config/auth-config/stored-config.ts'
import { POSTGREST_DEFAULTS, PostgrestConfig } from '../../service-config/postgrest/schema.ts'
import { RealtimeSettings } from '../../service-config/realtime/schema.ts'

/** The schema of each settings area, with the defaults that apply without a row. */
const AREAS = {
  postgres: PostgresConfig.default({}),
  pooler: PoolerSettings.default({ default_pool_size: null, pool_mode: 'session' }),
  readonly: z
    .object({
      enabled: z.boolean(),
      /** Origin of the mode: `size` while the database is too large, `operator` until the operator ends the mode. */
      by: z.enum(['size', 'operator']),
      /** ISO 8601. */
      overrideUntil: z.string().optional(),
      /** Whether the mode is set in the database, and must be unset there when it ends. */
      applied: z.boolean(),
    })
    .default({ enabled: false, by: 'size', applied: false }),
  ssl: z.object({ database: z.boolean() }).default({ database: false }),
  /** Allowed networks, separated by spaces, and the previous ones. The defaults allow every address. */
  network: z
    .object({ v4: z.string(), v6: z.string(), old_v4: z.string().optional(), old_v6: z.string().optional() })
    .default({ v4: '0.0.0.0/0', v6: '::/0' }),
  disk: z.object({ size_gb: z.int() }).default({ size_gb: 8 }),
  auth: StoredAuthConfig.default({ values: {}, secrets: {} }),
  postgrest: PostgrestConfig.default(POSTGREST_DEFAULTS),
  realtime: RealtimeSettings.extend({ presence_enabled: z.boolean().default(false) }).prefault({}),
  /**
   * `due_at` is the time of the next backup in ISO 8601, so that texts sort by time. Both fields are null if daily backups are turned
   * off. Without a row, the plan decides.
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
  /** Stored in the row of the project, which the storage server reads anyway. */
  storage: z.object({ fileSizeLimit: z.int().default(STORAGE_DEFAULTS.fileSizeLimit) }).prefault({}),
} satisfies Record<SettingArea | 'storage', z.ZodType>

export type Area = keyof typeof AREAS
/** Areas that a branch inherits from its parent. Read-only mode is a state of a database and not a setting. */
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

/** Parses a stored value; without one, returns the defaults. */
export const parseSettings = <A extends Area>(area: A, value: unknown): Settings<A> =>
  // The type is derived from the schema of the area.
  AREAS[area].parse(value ?? undefined) as Settings<A>

type Fields = Readonly<Record<string, unknown>>

/** Returns the fields of a value under their public names. */
const fieldsOf = <A extends Area>(area: A, value: Settings<A>): Fields =>
  // Auth is the only area whose fields are stored in another form.
  area === 'auth' ? toAuthConfig(value as Settings<'auth'>) : { ...value }

export function changedFields<A extends Area>(area: A, before: Settings<A>, after: Settings<A>): string[] {
  const [old, now] = [fieldsOf(area, before), fieldsOf(area, after)]
  return Array.from(new Set([...Object.keys(old), ...Object.keys(now)])).filter((name) => old[name] !== now[name])
}

/** Returns `theirs`, with the fields in `own` taken from `mine` or left out if `mine` lacks them. */
export function mergeFields<T extends object>(mine: T, theirs: T, own: readonly string[]): Record<string, T[keyof T]> {
  const others = Object.entries(theirs).filter(([name]) => !own.includes(name))
  return Object.fromEntries([...others, ...Object.entries(mine).filter(([name]) => own.includes(name))])
}

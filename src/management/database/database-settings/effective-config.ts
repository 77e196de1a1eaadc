import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { EffectiveSetting } from '../../../engine/settings.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { throwApiError } from '../database/service.ts'
import { PostgresConfig } from './schema.ts'

type Value = string | number | boolean

/**
 * Returns the effective settings of the project's Postgres, defaults included. A stored value that is in effect keeps its
 * original spelling. An inactive project has no server to query, so its stored settings are returned.
 */
export async function effectiveConfig(
  { engine }: Pick<Ctx, 'engine'>,
  { ref, status }: Pick<ProjectAccess, 'ref' | 'status'>,
  chosen: PostgresConfig,
): Promise<PostgresConfig> {
  if (!ACTIVE.includes(status)) return chosen
  const rows = await engine.settings.listEffective(ref).catch(throwApiError)
  const written = new Map<string, Value>(Object.entries(chosen))
  const entries = rows.flatMap((row) => {
    const value = toValue(row, written.get(row.name))
    return value === undefined ? [] : [[row.name, value] as const]
  })
  return Object.fromEntries(entries)
}

/**
 * Returns the settings to store. A value that equals the effective one changes nothing: clients send back all settings, which
 * must neither pin the defaults of a compute size nor replace stored values that are not in force yet.
 */
export function valuesToStore(
  requested: PostgresConfig,
  chosen: PostgresConfig,
  effective: PostgresConfig,
): PostgresConfig {
  const current = new Map<string, Value>(Object.entries(effective))
  const stored = new Map<string, Value>(Object.entries(chosen))
  const entries = Object.entries(requested).flatMap(([name, value]) => {
    const kept = current.get(name) === value ? stored.get(name) : value
    return kept === undefined ? [] : [[name, kept] as const]
  })
  return Object.fromEntries(entries)
}

const isKnown = (name: string): name is keyof PostgresConfig => name in PostgresConfig.shape

/** Converts a setting to the type of the API; undefined if the API does not have it. */
function toValue(row: EffectiveSetting, written: Value | undefined): Value | undefined {
  if (!isKnown(row.name)) return undefined
  if (written !== undefined && !row.pendingRestart && isSame(row, written)) return written
  const schema = PostgresConfig.shape[row.name].unwrap()
  const candidates: Value[] = [isOn(row.value), Number(row.value), row.value]
  return candidates.find((candidate) => schema.safeParse(candidate).success)
}

/** `log_connections` has more than two values since Postgres 18. */
const isOn = (value: string): boolean => value !== 'off' && value !== ''

function isSame({ name, value }: EffectiveSetting, written: Value): boolean {
  if (typeof written === 'boolean') return isOn(value) === written
  // A driver that cannot change the server's limit sets a connection limit on the database instead.
  if (name === 'max_connections') return Number(written) <= Number(value)
  return String(written) === value || quantities(String(written)).some((one) => quantities(value).includes(one))
}

const UNITS: Readonly<Record<string, number>> = {
  ...{ us: 0.001, ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 },
  ...{ B: 1, kB: 1024, MB: 1024 ** 2, GB: 1024 ** 3, TB: 1024 ** 4 },
}
/** Units that Postgres assumes for a number without a unit. */
const DEFAULT_UNITS = [1, 1_000, 60_000, 1024, 8 * 1024, 1024 ** 2]

/** Returns all quantities that the text can mean. */
function quantities(text: string): number[] {
  const [, number = '', unit = ''] = /^\s*(-?[0-9.]+)\s*([A-Za-z]*)\s*$/.exec(text) ?? []
  if (number === '') return []
  const units = unit === '' ? DEFAULT_UNITS : [UNITS[unit] ?? Number.NaN]
  return units.map((each) => Number(number) * each)
}

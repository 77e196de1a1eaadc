import { requestError } from '../data-api-error.ts'

/** The values of the `Prefer` header that this API knows. */
const KNOWN = {
  resolution: ['merge-duplicates', 'ignore-duplicates'],
  return: ['representation', 'minimal', 'headers-only'],
  count: ['exact', 'planned', 'estimated'],
  tx: ['commit', 'rollback'],
  missing: ['default', 'null'],
  handling: ['strict', 'lenient'],
} as const

type Known = { [Name in keyof typeof KNOWN]?: (typeof KNOWN)[Name][number] }

export interface Preferences extends Known {
  timezone?: string | undefined
  maxAffected?: number | undefined
  invalid: readonly string[]
}

/** Parses the `Prefer` header. The first valid value of each preference applies. */
export function parsePreferences(header: string | null): Preferences {
  const found: Record<string, string> = {}
  const invalid: string[] = []
  for (const preference of (header ?? '').split(',')) {
    const [name = '', value = ''] = preference.trim().split('=', 2)
    if (name === '') continue
    if (Object.hasOwn(found, name)) continue
    if (isKnown(name, value)) found[name] = value
    else invalid.push(preference.trim())
  }
  const { timezone, 'max-affected': maxAffected, ...known } = found
  return {
    // `isKnown` has checked each value.
    ...(known as Known),
    timezone,
    ...(maxAffected !== undefined && { maxAffected: Number(maxAffected) }),
    invalid,
  }
}

function isKnown(name: string, value: string): boolean {
  if (name === 'timezone') return value !== ''
  if (name === 'max-affected') return /^\d{1,15}$/.test(value)
  return Object.hasOwn(KNOWN, name) && KNOWN[name as keyof typeof KNOWN].some((one) => one === value)
}

/** With `handling=strict`, refuses preferences that would be ignored. */
export function requireValidPreferences({ handling, invalid, timezone }: Preferences, timezones: ReadonlySet<string>) {
  if (handling !== 'strict') return
  const unknownZone = timezone !== undefined && !timezones.has(timezone) ? [`timezone=${timezone}`] : []
  const refused = [...invalid, ...unknownZone]
  if (refused.length > 0) throw requestError('PGRST122', { details: `Invalid preferences: ${refused.join(', ')}` })
}

/** The `Preference-Applied` header: the preferences that had an effect on this request. */
export function appliedPreferences(preferences: Preferences, effective: readonly (keyof Preferences)[]): string {
  const names: Partial<Record<keyof Preferences, string>> = { maxAffected: 'max-affected' }
  const order = ['resolution', 'missing', 'return', 'count', 'tx', 'handling', 'timezone', 'maxAffected'] as const
  return order
    .filter((name) => effective.includes(name) && preferences[name] !== undefined)
    .map((name) => `${names[name] ?? name}=${preferences[name]}`)
    .join(', ')
}

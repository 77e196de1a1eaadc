import type { DatabaseLint } from '../lints.ts'
import { healthChecks } from './health.ts'
import { performanceChecks } from './performance.ts'
import { scope } from './scope.ts'
import { securityChecks } from './security.ts'

/** The maximum number of findings per lint. The total is returned with them. */
export const FINDINGS_MAX = 500

/** Each check selects schema, name, type, key, detail and more. All are text except `key` (text[]) and `more` (JSON). */
const CHECKS: Record<DatabaseLint | 'db_connection_limit_reached', string> = {
  ...performanceChecks,
  ...securityChecks,
  ...healthChecks,
}
export type DatabaseCheck = keyof typeof CHECKS

const METADATA = `jsonb_strip_nulls(jsonb_build_object('type', type, 'schema', schema, 'name', name) || coalesce(more::jsonb, '{}'))`

/** Keys must not change with the session settings of the database's owner. */
const SETTINGS = `SELECT ${Object.entries({
  search_path: 'pg_catalog',
  standard_conforming_strings: 'on',
  quote_all_identifiers: 'off',
  jit: 'off',
})
  .map(([name, value]) => `pg_catalog.set_config('${name}', '${value}', true)`)
  .join(', ')}`

/** Returns one row per `Finding`: a single statement for all lints, after one that fixes the session settings. */
export function checkStatement(lints: readonly DatabaseCheck[], apiSchemas: readonly string[]): string {
  const selects = lints.map(
    (lint) => `(SELECT '${lint}' AS lint, detail, key, ${METADATA} AS metadata, (count(*) OVER ())::int AS total
      FROM (${CHECKS[lint]}) AS found ORDER BY key COLLATE "C" LIMIT ${FINDINGS_MAX})`,
  )
  if (selects.length === 0) return 'SELECT WHERE false'
  return `${SETTINGS};\nWITH ${scope(apiSchemas)}\n${selects.join('\nUNION ALL\n')}`
}

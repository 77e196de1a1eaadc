import { type SQL, sql } from 'drizzle-orm'
import { LINE_AT, LOG_COLUMNS, LOG_SOURCES, type LogColumn, type LogSource } from '../../../../outbound/logs/rows.ts'

/** The project and the time range of a query: `start` inclusive, `end` exclusive, in UTC with microseconds. */
export interface Scope {
  project: { ref: string; parentRef: string | null }
  start: string
  end: string
}

export type Column = LogColumn
export const COLUMNS: readonly Column[] = LOG_COLUMNS

const instant = (at: string): SQL => sql`${at}::timestamptz`
const inRange = (at: SQL, { start, end }: Scope): SQL => sql`${at} >= ${instant(start)} and ${at} < ${instant(end)}`
const extendBack = (scope: Scope, ms: number): Scope => ({
  ...scope,
  start: new Date(Date.parse(scope.start) - ms).toISOString(),
})

/** Log lines are looked up by their call, which may have started this much earlier. Later lines need a longer time range. */
const CALL_MS_MAX = 10 * 60_000
const RUN_MS_MAX = 86_400_000

/** Conditions for records in the scope, by kind. */
const CONDITIONS: Record<LogSource['of'], (scope: Scope) => SQL> = {
  call: (scope) => sql`i.project_ref = ${scope.project.ref} and ${inRange(sql`i.at`, scope)}`,
  line: (scope) => sql`i.project_ref = ${scope.project.ref} and ${inRange(sql`i.at`, extendBack(scope, CALL_MS_MAX))}
    and ${inRange(LINE_AT, scope)}`,
  build: (scope) => sql`w.project_ref = ${scope.project.ref} and ${inRange(sql`t.finished_at`, scope)}`,
  run_line: (scope) => {
    const { ref, parentRef } = scope.project
    return sql`${parentRef === null ? sql`r.parent_ref = ${ref}` : sql`r.project_ref = ${ref}`}
      and ${inRange(sql`r.created_at`, extendBack(scope, RUN_MS_MAX))} and ${inRange(sql`l.at`, scope)}`
  },
  postgres_log: (scope) => sql`g.project_ref = ${scope.project.ref} and ${inRange(sql`g.at`, scope)}`,
  storage_request: (scope) => sql`s.project_ref = ${scope.project.ref} and ${inRange(sql`s.at`, scope)}`,
  data_api_request: (scope) => sql`d.project_ref = ${scope.project.ref} and ${inRange(sql`d.at`, scope)}`,
}

/** Sources of hosted projects that this installation does not record; they are always empty. */
const WITHOUT_ROWS = [
  ...['postgrest_logs', 'auth_logs', 'auth_audit_logs', 'realtime_logs'],
  ...['supavisor_logs', 'pgbouncer_logs', 'pg_upgrade_logs', 'pg_cron_logs'],
]

/** The table of all sources for ClickHouse clients; BigQuery clients read one table per source. */
export const UNIFIED = 'logs'
export const TABLES: readonly string[] = [
  ...new Set([UNIFIED, ...LOG_SOURCES.map(({ name }) => name), ...WITHOUT_ROWS]),
]

const NO_ROWS = sql`select null::text as id, null::timestamptz as timestamp, null::text as source, null::text as severity_text,
  null::text as event_message, null::jsonb as log_attributes where false`

interface SourceOptions {
  /** The sources to read; undefined for all. */
  sources: readonly string[] | undefined
  /** The direction, if the query sorts by time first. */
  order: 'asc' | 'desc' | undefined
}

/** Selects COLUMNS of the rows that the project may read in the time range. */
export function rowsOfSources(scope: Scope, { sources, order }: SourceOptions): SQL {
  const read = LOG_SOURCES.filter(({ name }) => sources?.includes(name) ?? true)
  if (read.length === 0) return NO_ROWS
  // Postgres merges several sources by index only if each of them is ordered.
  const ordered = order && read.length > 1 ? sql.raw(`order by timestamp ${order}`) : sql``
  return sql.join(
    read.map(
      ({ of, columns, from, where }) =>
        sql`(select ${columns} from ${from} where ${where} and ${CONDITIONS[of](scope)} ${ordered})`,
    ),
    sql` union all `,
  )
}

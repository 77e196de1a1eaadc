import { type SQL, sql } from 'drizzle-orm'
import { LINE_AT, LOG_COLUMNS, LOG_SOURCES, type LogColumn, type LogSource } from '../../../../outbound/logs/rows.ts'

/** Whose logs, and of when: from `start` on, before `end`. */
export interface Scope {
  project: { ref: string; parentRef: string | null }
  start: Date
  end: Date
}

export type Column = LogColumn
export const COLUMNS: readonly Column[] = LOG_COLUMNS

const instant = (at: Date): SQL => sql`${at.toISOString()}::timestamptz`
const within = (at: SQL, { start, end }: Scope): SQL => sql`${at} >= ${instant(start)} and ${at} < ${instant(end)}`
const back = (scope: Scope, ms: number): Scope => ({ ...scope, start: new Date(scope.start.getTime() - ms) })

/** A line that is printed later after its call began is found where the window reaches back to the call. */
const PRINTED_WITHIN_MS = 10 * 60_000
const RUN_MS_MAX = 86_400_000

/** Which records of a kind the scope holds. */
const HELD: Record<LogSource['of'], (scope: Scope) => SQL> = {
  call: (scope) => sql`i.project_ref = ${scope.project.ref} and ${within(sql`i.at`, scope)}`,
  line: (scope) => sql`i.project_ref = ${scope.project.ref} and ${within(sql`i.at`, back(scope, PRINTED_WITHIN_MS))}
    and ${within(LINE_AT, scope)}`,
  build: (scope) => sql`w.project_ref = ${scope.project.ref} and ${within(sql`t.finished_at`, scope)}`,
  run_line: (scope) => {
    const { ref, parentRef } = scope.project
    return sql`${parentRef === null ? sql`r.parent_ref = ${ref}` : sql`r.project_ref = ${ref}`}
      and ${within(sql`r.created_at`, back(scope, RUN_MS_MAX))} and ${within(sql`l.at`, scope)}`
  },
  postgres_log: (scope) => sql`g.project_ref = ${scope.project.ref} and ${within(sql`g.at`, scope)}`,
  storage_request: (scope) => sql`s.project_ref = ${scope.project.ref} and ${within(sql`s.at`, scope)}`,
}

/** Sources that hosted projects have, of which nothing is recorded here: reading them finds nothing. */
const WITHOUT_ROWS = [
  ...['postgrest_logs', 'auth_logs', 'auth_audit_logs', 'realtime_logs'],
  ...['supavisor_logs', 'pgbouncer_logs', 'pg_upgrade_logs', 'pg_cron_logs'],
]

/** The table of all sources, which ClickHouse's clients read; BigQuery's read a table for each source. */
export const UNIFIED = 'logs'
export const TABLES: readonly string[] = [
  ...new Set([UNIFIED, ...LOG_SOURCES.map(({ name }) => name), ...WITHOUT_ROWS]),
]

const NOTHING = sql`select null::text as id, null::timestamptz as timestamp, null::text as source, null::text as severity_text,
  null::text as event_message, null::jsonb as log_attributes where false`

interface Asked {
  /** Undefined for all. */
  sources: readonly string[] | undefined
  /** How the query sorts them by time first of all, if it does. */
  order: 'asc' | 'desc' | undefined
}

/** The rows that the project may read in the window, with COLUMNS. */
export function rowsOfSources(scope: Scope, { sources, order }: Asked): SQL {
  const read = LOG_SOURCES.filter(({ name }) => sources?.includes(name) ?? true)
  if (read.length === 0) return NOTHING
  // Postgres merges several sources by their indexes only where each of them has the order.
  const ordered = order && read.length > 1 ? sql.raw(`order by timestamp ${order}`) : sql``
  return sql.join(
    read.map(
      ({ of, columns, from, where }) =>
        sql`(select ${columns} from ${from} where ${where} and ${HELD[of](scope)} ${ordered})`,
    ),
    sql` union all `,
  )
}

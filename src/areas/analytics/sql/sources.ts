import { type SQL, sql } from 'drizzle-orm'

/** Whose logs, and of when: from `start` on, before `end`. */
export interface Scope {
  project: { ref: string; parentRef: string | null }
  start: Date
  end: Date
}

export type Column = 'id' | 'timestamp' | 'source' | 'severity_text' | 'event_message' | 'log_attributes'
export const COLUMNS: readonly Column[] = [
  'id',
  'timestamp',
  'source',
  'severity_text',
  'event_message',
  'log_attributes',
]

const instant = (at: Date): SQL => sql`${at.toISOString()}::timestamptz`
const within = (at: SQL, { start, end }: Scope): SQL => sql`${at} >= ${instant(start)} and ${at} < ${instant(end)}`

/** Ids compare as clients compare them. */
const derivedId = (text: SQL): SQL => sql`md5(${text})::uuid::text collate "C"`

const severityOfStatus = sql`case when i.status = 0 or i.status >= 500 then 'ERROR' when i.status >= 400 then 'WARN' else 'INFO' end`
const workerName = sql`(select name from workers where id = i.program_id)`

/** Calls of programs, as one kind of line tells of them. */
const calls = (scope: Scope, source: string, { id, kind, attributes }: { id: SQL; kind: SQL; attributes: SQL }) => sql`
  select ${id} as id, i.at as timestamp, ${source}::text as source, ${severityOfStatus} as severity_text,
    i.method || ' | ' || i.status || ' | ' || i.path as event_message, jsonb_build_object(${attributes}) as log_attributes
  from invocations i where i.project_ref = ${scope.project.ref} and ${kind} and ${within(sql`i.at`, scope)}`

/** A line that is printed later after its call began is found where the window reaches back to the call. */
const PRINTED_WITHIN_MS = 10 * 60_000

const LEVEL = sql`case l.line ->> 'level' when 'log' then 'info' else l.line ->> 'level' end`

const lines = (scope: Scope, source: string, kind: string, attributes: SQL) => {
  const since = new Date(scope.start.getTime() - PRINTED_WITHIN_MS)
  return sql`
    select ${derivedId(sql`i.id || ' ' || l.number`)} as id, (l.line ->> 'at')::timestamptz as timestamp,
      ${source}::text as source, upper(${LEVEL}) as severity_text, l.line ->> 'message' as event_message,
      jsonb_build_object(${attributes}, 'execution_id', i.id::text, 'deployment_id', i.deployment_id::text) as log_attributes
    from invocations i cross join lateral jsonb_array_elements(i.console) with ordinality as l (line, number)
    where i.project_ref = ${scope.project.ref} and i.kind = ${kind}
      and ${within(sql`i.at`, { ...scope, start: since })} and ${within(sql`(l.line ->> 'at')::timestamptz`, scope)}`
}

const REQUEST = sql`'request.method', i.method, 'request.path', i.path, 'request.pathname', i.path,
  'response.status_code', i.status::text, 'execution_time_ms', i.ms::text, 'execution_id', i.id::text`

const RUN_DAYS_MAX = 1

/** What is recorded, by source; as names of hosted logs, where those have one. */
const RECORDED: Record<string, (scope: Scope) => SQL> = {
  edge_logs: (scope) =>
    calls(scope, 'edge_logs', {
      id: derivedId(sql`'edge ' || i.id`),
      kind: sql`true`,
      attributes: sql`${REQUEST}, 'identifier', i.project_ref`,
    }),
  function_edge_logs: (scope) =>
    calls(scope, 'function_edge_logs', {
      id: sql`i.id::text collate "C"`,
      kind: sql`i.kind = 'function'`,
      attributes: sql`${REQUEST}, 'function_id', i.program_id::text, 'deployment_id', i.deployment_id::text`,
    }),
  function_logs: (scope) =>
    lines(
      scope,
      'function_logs',
      'function',
      sql`'level', ${LEVEL}, 'event_type', 'Log', 'function_id', i.program_id::text`,
    ),
  worker_ingress_logs: (scope) =>
    calls(scope, 'worker_ingress_logs', {
      id: sql`i.id::text collate "C"`,
      kind: sql`i.kind = 'worker'`,
      attributes: sql`'subservice', 'worker_ingress_logs', 'worker', ${workerName}, 'method', i.method, 'path', i.path,
        'status', i.status::text, 'duration_ms', i.ms::text`,
    }),
  worker_guest_logs: (scope) =>
    lines(
      scope,
      'worker_guest_logs',
      'worker',
      sql`'subservice', 'worker_guest_logs', 'worker', ${workerName}, 'level', ${LEVEL}`,
    ),
  worker_api_logs: (scope) => sql`
    select t.id::text collate "C" as id, t.finished_at as timestamp, 'worker_api_logs' as source,
      case t.state when 'failed' then 'ERROR' else 'INFO' end as severity_text, e.event as event_message,
      jsonb_strip_nulls(jsonb_build_object('subservice', 'worker_api_logs', 'worker', w.name, 'event', e.event,
        'reason', case t.state when 'failed' then t.last_error end)) as log_attributes
    from workers w join worker_tasks t on t.worker_id = w.id
      cross join lateral (select case t.state when 'failed' then 'build_failed' else 'build_succeeded' end as event) e
    where w.project_ref = ${scope.project.ref} and t.kind = 'build' and t.state in ('done', 'failed')
      and ${within(sql`t.finished_at`, scope)}`,
  workflow_run_logs: (scope) => {
    const { ref, parentRef } = scope.project
    const since = new Date(scope.start.getTime() - RUN_DAYS_MAX * 86_400_000)
    return sql`
      select l.id::text collate "C" as id, l.at as timestamp, 'workflow_run_logs' as source, 'INFO' as severity_text,
        l.step || ': ' || l.line as event_message, jsonb_build_object('workflow_run', r.id::text, 'step', l.step,
        'branch_id', r.branch_id::text) as log_attributes
      from action_runs r join action_run_logs l on l.run_id = r.id
      where ${parentRef === null ? sql`r.parent_ref = ${ref}` : sql`r.project_ref = ${ref}`}
        and ${within(sql`r.created_at`, { ...scope, start: since })} and ${within(sql`l.at`, scope)}`
  },
}

/** Sources that hosted projects have, of which nothing is recorded here: reading them finds nothing. */
const WITHOUT_ROWS = [
  ...['postgres_logs', 'postgrest_logs', 'auth_logs', 'auth_audit_logs', 'storage_logs', 'realtime_logs'],
  ...['supavisor_logs', 'pgbouncer_logs', 'pg_upgrade_logs', 'pg_cron_logs'],
]

/** The table of all sources, which ClickHouse's clients read; BigQuery's read a table for each source. */
export const UNIFIED = 'logs'
export const TABLES: readonly string[] = [UNIFIED, ...Object.keys(RECORDED), ...WITHOUT_ROWS]

const NOTHING = sql`select null::text as id, null::timestamptz as timestamp, null::text as source, null::text as severity_text,
  null::text as event_message, null::jsonb as log_attributes where false`

/** The rows of a table that the project may read in the window, with COLUMNS; of these sources, or of all. */
export function rowsOfTable(table: string, scope: Scope, sources?: readonly string[]): SQL {
  const asked = table === UNIFIED ? sources : [table]
  const read = Object.keys(RECORDED).filter((source) => asked?.includes(source) ?? true)
  if (read.length === 0) return NOTHING
  return sql.join(
    read.map((source) => RECORDED[source]?.(scope)),
    sql` union all `,
  )
}

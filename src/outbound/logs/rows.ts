import { type SQL, sql } from 'drizzle-orm'

/** The columns of a project's logs. All values in `log_attributes` are text. */
export const LOG_COLUMNS = ['id', 'timestamp', 'source', 'severity_text', 'event_message', 'log_attributes'] as const
export type LogColumn = (typeof LOG_COLUMNS)[number]

/**
 * Log rows derived from records of one kind. Aliases: `i` a call, `l` a line of a call or a run, `t` a build, `r` a run, `g` a
 * Postgres message, `s` a storage request, `d` a Data API request.
 */
export interface LogSource {
  name: string
  of: 'call' | 'line' | 'build' | 'run_line' | 'postgres_log' | 'storage_request' | 'data_api_request'
  columns: SQL
  from: SQL
  where: SQL
}

/** Derives an id with the collation by which clients compare ids. */
const derivedId = (text: SQL): SQL => sql`md5(${text})::uuid::text collate "C"`

const severityOfStatus = (status: SQL): SQL =>
  sql`case when ${status} = 0 or ${status} >= 500 then 'ERROR' when ${status} >= 400 then 'WARN' else 'INFO' end`
/** SQL of the name of a worker, or of its id once it is removed. */
const workerName = sql`coalesce((select name from workers where id = i.program_id), i.program_id::text)`

/** Log rows for calls of programs. */
const calls = (name: string, { id, kind, attributes }: { id: SQL; kind: SQL; attributes: SQL }): LogSource => ({
  name,
  of: 'call',
  columns: sql`${id} as id, i.at as timestamp, ${name}::text as source, ${severityOfStatus(sql`i.status`)} as severity_text,
    i.method || ' | ' || i.status || ' | ' || i.path as event_message, jsonb_build_object(${attributes}) as log_attributes`,
  from: sql`invocations i`,
  where: kind,
})

const LEVEL = sql`case l.line ->> 'level' when 'log' then 'info' else l.line ->> 'level' end`

/** Adds microseconds so that lines of the same millisecond keep their order; a call has at most 100 lines. */
export const LINE_AT = sql`((l.line ->> 'at')::timestamptz + (l.number - 1) * interval '1 microsecond')`

const lines = (name: string, kind: string, attributes: SQL): LogSource => ({
  name,
  of: 'line',
  columns: sql`${derivedId(sql`i.id || ' ' || l.number`)} as id, ${LINE_AT} as timestamp,
    ${name}::text as source, upper(${LEVEL}) as severity_text, l.line ->> 'message' as event_message,
    jsonb_build_object(${attributes}, 'execution_id', i.id::text, 'deployment_id', i.deployment_id::text) as log_attributes`,
  from: sql`invocations i cross join lateral jsonb_array_elements(i.console) with ordinality as l (line, number)`,
  where: sql`i.kind = ${kind}`,
})

const requestOf = (record: SQL): SQL => sql`'request.method', ${record}.method, 'request.path', ${record}.path,
  'request.pathname', ${record}.path, 'response.status_code', ${record}.status::text, 'execution_time_ms', ${record}.ms::text`
const CALL = sql`${requestOf(sql`i`)}, 'execution_id', i.id::text`
const serviceRequestOf = (record: SQL): SQL =>
  sql`${requestOf(record)}, 'request_id', ${record}.id::text, 'identifier', ${record}.project_ref`
const STORAGE_REQUEST = serviceRequestOf(sql`s`)

const severityOfMessage = sql`case when g.attributes ->> 'parsed.error_severity' in ('ERROR', 'FATAL', 'PANIC') then 'ERROR'
  when g.attributes ->> 'parsed.error_severity' = 'WARNING' then 'WARN' else 'INFO' end`

const storageRequests = (
  name: string,
  { id, message, attributes }: Record<'id' | 'message' | 'attributes', SQL>,
): LogSource => ({
  name,
  of: 'storage_request',
  columns: sql`${id} as id, s.at as timestamp, ${name}::text as source, ${severityOfStatus(sql`s.status`)} as severity_text,
    s.method || ' | ' || s.status || ' | ' || ${message} as event_message, ${attributes} as log_attributes`,
  from: sql`storage_requests s`,
  where: sql`true`,
})

/** The path at the storage server, as in its own log. */
const storagePath = sql`substr(s.path, strpos(s.path, '/storage/v1/') + ${'/storage/v1'.length}::int)`
const skippedNote = (record: SQL): SQL =>
  sql`case when ${record}.skipped > 0 then ' | ' || ${record}.skipped || ' requests before it left no row' else '' end`

/** The log sources, named as on the hosted service where it has them. */
export const LOG_SOURCES: readonly LogSource[] = [
  calls('edge_logs', {
    id: derivedId(sql`'edge ' || i.id`),
    kind: sql`true`,
    attributes: sql`${CALL}, 'identifier', i.project_ref`,
  }),
  calls('function_edge_logs', {
    id: sql`i.id::text collate "C"`,
    kind: sql`i.kind = 'function'`,
    attributes: sql`${CALL}, 'function_id', i.program_id::text, 'deployment_id', i.deployment_id::text`,
  }),
  lines('function_logs', 'function', sql`'level', ${LEVEL}, 'event_type', 'Log', 'function_id', i.program_id::text`),
  calls('worker_ingress_logs', {
    id: sql`i.id::text collate "C"`,
    kind: sql`i.kind = 'worker'`,
    attributes: sql`'subservice', 'worker_ingress_logs', 'worker', ${workerName}, 'method', i.method, 'path', i.path,
      'status', i.status::text, 'duration_ms', i.ms::text`,
  }),
  lines(
    'worker_guest_logs',
    'worker',
    sql`'subservice', 'worker_guest_logs', 'worker', ${workerName}, 'level', ${LEVEL}`,
  ),
  {
    name: 'worker_api_logs',
    of: 'build',
    columns: sql`t.id::text collate "C" as id, t.finished_at as timestamp, 'worker_api_logs' as source,
      case t.state when 'failed' then 'ERROR' else 'INFO' end as severity_text, e.event as event_message,
      jsonb_strip_nulls(jsonb_build_object('subservice', 'worker_api_logs', 'worker', w.name, 'event', e.event,
        'reason', case t.state when 'failed' then t.last_error end)) as log_attributes`,
    from: sql`workers w join worker_tasks t on t.worker_id = w.id
      cross join lateral (select case t.state when 'failed' then 'build_failed' else 'build_succeeded' end as event) e`,
    where: sql`t.kind = 'build' and t.state in ('done', 'failed')`,
  },
  {
    name: 'workflow_run_logs',
    of: 'run_line',
    columns: sql`l.id::text collate "C" as id, l.at as timestamp, 'workflow_run_logs' as source, 'INFO' as severity_text,
      l.step || ': ' || l.line as event_message, jsonb_build_object('workflow_run', r.id::text, 'step', l.step,
      'branch_id', r.branch_id::text) as log_attributes`,
    from: sql`action_runs r join action_run_logs l on l.run_id = r.id`,
    where: sql`true`,
  },
  {
    name: 'postgres_logs',
    of: 'postgres_log',
    columns: sql`g.id::text collate "C" as id, g.at as timestamp, 'postgres_logs' as source, ${severityOfMessage} as severity_text,
      g.message as event_message, g.attributes || jsonb_build_object('identifier', g.project_ref) as log_attributes`,
    from: sql`postgres_logs g`,
    where: sql`true`,
  },
  storageRequests('edge_logs', {
    id: derivedId(sql`'edge ' || s.id`),
    message: sql`s.path`,
    attributes: sql`jsonb_build_object(${STORAGE_REQUEST})`,
  }),
  storageRequests('storage_logs', {
    id: sql`s.id::text collate "C"`,
    message: sql`${storagePath} || ${skippedNote(sql`s`)}`,
    attributes: sql`jsonb_strip_nulls(jsonb_build_object(${STORAGE_REQUEST}, 'error', s.error, 'level',
      lower(${severityOfStatus(sql`s.status`)})))`,
  }),
  {
    name: 'edge_logs',
    of: 'data_api_request',
    columns: sql`${derivedId(sql`'edge ' || d.id`)} as id, d.at as timestamp, 'edge_logs' as source,
      ${severityOfStatus(sql`d.status`)} as severity_text,
      d.method || ' | ' || d.status || ' | ' || d.path || ${skippedNote(sql`d`)} as event_message,
      jsonb_strip_nulls(jsonb_build_object(${serviceRequestOf(sql`d`)}, 'error', d.error)) as log_attributes`,
    from: sql`data_api_requests d`,
    where: sql`true`,
  },
]

import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { postgresFailure } from '../../../platform/db/postgres-errors.ts'
import { describeError } from '../../../platform/http/log.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { readBounded } from './concurrent-reads.ts'
import { freshenPostgresLogs } from './pull-postgres-logs.ts'
import type { AnalyticsAnswer, LogsQuery } from './schema.ts'
import { ANSWER_LENGTH_MAX, compileQuery } from './sql/compile.ts'
import { toInstant } from './sql/instant.ts'
import { parseQuery } from './sql/parse.ts'
import { QueryError, TOO_LONG } from './sql/tokens.ts'

const MINUTE_MS = 60_000
const WINDOW_MINUTES_MAX = 24 * 60
/** Age of the latest messages, which may not have been read from the database's host yet. */
const RECENT_MS = 3 * MINUTE_MS
const EDGE_LOGS = `select id, timestamp, event_message, request.method, request.path, response.status_code
  from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as request
  cross join unnest(m.response) as response order by timestamp desc limit 100`

type Answer = z.input<typeof AnalyticsAnswer>

/** Runs a query on the project's logs. An invalid query returns its error with status 200, as clients expect. */
export async function getLogs(ctx: Ctx, project: ProjectAccess, query: z.output<typeof LogsQuery>): Promise<Answer> {
  const window = windowOf(query, ctx.now())
  try {
    const { statement, columns, sources } = compileQuery(parseQuery(query.sql ?? EDGE_LOGS), {
      project,
      ...window,
      now: ctx.now(),
    })
    const includesRecent = Date.parse(window.end) > ctx.now().getTime() - RECENT_MS
    if (includesRecent && (sources?.includes('postgres_logs') ?? true)) await freshenPostgresLogs(ctx, project.ref)
    const [row] = await readBounded<{ rows: unknown[][] | null }>(ctx, project.ref, statement)
    if (!row?.rows) throw new QueryError(`the result is longer than ${ANSWER_LENGTH_MAX} characters: select less`)
    return { result: row.rows.map((values) => Object.fromEntries(columns.map((name, n) => [name, values[n]]))) }
  } catch (error) {
    return { result: [], error: describeProblem(ctx, error) }
  }
}

function windowOf({ iso_timestamp_start, iso_timestamp_end }: z.output<typeof LogsQuery>, now: Date) {
  const end = toInstant(iso_timestamp_end ?? now.toISOString())
  const start = toInstant(iso_timestamp_start ?? new Date(Date.parse(end) - MINUTE_MS).toISOString())
  const minutes = Math.round((Date.parse(end) - Date.parse(start)) / MINUTE_MS)
  if (start > end) throw invalidField('query.iso_timestamp_start', 'must not be after iso_timestamp_end')
  if (minutes > WINDOW_MINUTES_MAX)
    throw invalidField('query.iso_timestamp_end', 'must be at most 24 hours after iso_timestamp_start')
  return { start, end }
}

function describeProblem({ log }: Ctx, error: unknown): string {
  if (error instanceof QueryError) return error.message
  const { code = '', message = '' } = postgresFailure(error) ?? {}
  // Postgres rejects a value of the query, such as an invalid regular expression.
  if (code.startsWith('22')) return message
  // The query exceeds a limit of Postgres, such as the number of groups.
  if (code.startsWith('54')) return TOO_LONG
  if (!code.startsWith('42')) throw error
  log.error('failed', { code: 'logs_query', error: describeError(error) })
  return 'the query is not supported'
}

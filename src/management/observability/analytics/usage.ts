import { sql } from 'drizzle-orm'
import * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { readBounded } from './concurrent-reads.ts'
import type { ApiCounts, FunctionStats, FunctionStatsQuery, Interval } from './schema.ts'
import { QueryError } from './sql/tokens.ts'

/** The length of each interval, and the time that a row covers. */
const INTERVALS = {
  '15min': { minutes: 15, row: '1 minute' },
  '30min': { minutes: 30, row: '1 minute' },
  '1hr': { minutes: 60, row: '1 minute' },
  '3hr': { minutes: 180, row: '1 minute' },
  '1day': { minutes: 1_440, row: '1 hour' },
  '3day': { minutes: 4_320, row: '1 hour' },
  '7day': { minutes: 10_080, row: '1 hour' },
} satisfies Record<z.output<typeof Interval>, { minutes: number; row: string }>

type Name = keyof typeof INTERVALS
type Row<T extends typeof ApiCounts | typeof FunctionStats> = z.input<T>['result'][number]

function windowOf({ now }: Ctx, interval: Name) {
  const { minutes, row } = INTERVALS[interval]
  const start = new Date(now().getTime() - minutes * 60_000).toISOString()
  return {
    start: sql`${start}::timestamptz`,
    end: sql`${now().toISOString()}::timestamptz`,
    row: sql`${row}::interval`,
  }
}

const startOf = (row: ReturnType<typeof windowOf>['row'], at: ReturnType<typeof sql>) =>
  sql`to_char(date_bin(${row}, ${at}, '2000-01-01Z'::timestamptz) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`

/** Counts requests; only times with requests have rows. The installation runs no Auth and no Realtime, so those are zero. */
export async function getApiCounts(
  ctx: Ctx,
  { ref }: ProjectAccess,
  interval: Name,
): Promise<z.input<typeof ApiCounts>> {
  const { start, end, row } = windowOf(ctx, interval)
  const rows = await rowsOf<Row<typeof ApiCounts>>(
    ctx.db,
    sql`select ${startOf(row, sql`minute`)} as timestamp, 0 as total_auth_requests, 0 as total_realtime_requests,
      (coalesce(sum(requests) filter (where service = 'rest'), 0))::int as total_rest_requests,
      (coalesce(sum(requests) filter (where service = 'storage'), 0))::int as total_storage_requests
      from request_counts where project_ref = ${ref} and service in ('storage', 'rest') and minute > ${start} and minute <= ${end}
      group by 1 order by 1`,
  )
  return { result: rows }
}

/** Counts the requests to all services of a project in the last day. */
export async function getRequestCount(ctx: Ctx, { ref }: ProjectAccess) {
  const { start, end } = windowOf(ctx, '1day')
  const result = await rowsOf<{ count: number }>(
    ctx.db,
    sql`select coalesce(sum(requests), 0)::float8 as count from request_counts
      where project_ref = ${ref} and minute > ${start} and minute <= ${end}`,
  )
  return { result }
}

/** Counts calls and log lines of a function; only times with calls have rows. */
export async function getFunctionStats(
  ctx: Ctx,
  { ref }: ProjectAccess,
  { interval, function_id }: z.output<typeof FunctionStatsQuery>,
): Promise<z.input<typeof FunctionStats>> {
  if (!z.guid().safeParse(function_id).success) return { result: [] }
  const { start, end, row } = windowOf(ctx, interval)
  const statement = sql`
    select ${startOf(row, sql`i.at`)} as timestamp, count(*)::int as requests_count,
      (count(*) filter (where i.status between 100 and 299))::int as success_count,
      (count(*) filter (where i.status between 300 and 399))::int as redirect_count,
      (count(*) filter (where i.status between 400 and 499))::int as client_err_count,
      (count(*) filter (where i.status >= 500 or i.status = 0))::int as server_err_count,
      avg(i.ms)::float8 as avg_execution_time, max(i.ms) as max_execution_time,
      coalesce(sum(jsonb_array_length(i.console)), 0)::int as log_count,
      coalesce(sum(l.info), 0)::int as log_info_count, coalesce(sum(l.warn), 0)::int as log_warn_count,
      coalesce(sum(l.error), 0)::int as log_error_count
    from invocations i left join lateral (
      select count(*) filter (where line ->> 'level' in ('log', 'info')) as info,
        count(*) filter (where line ->> 'level' = 'warn') as warn, count(*) filter (where line ->> 'level' = 'error') as error
      from jsonb_array_elements(i.console) line) l on i.console <> '[]'
    where i.project_ref = ${ref} and i.kind = 'function' and i.program_id = ${function_id}::uuid
      and i.at > ${start} and i.at <= ${end}
    group by 1 order by 1`
  try {
    return { result: await readBounded<Row<typeof FunctionStats>>(ctx, ref, statement) }
  } catch (error) {
    if (error instanceof QueryError) return { result: [], error: error.message }
    throw error
  }
}

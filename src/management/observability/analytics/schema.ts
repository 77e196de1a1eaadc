import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const SQL_LENGTH_MAX = 10_000

const Moment = z.iso.datetime({ offset: true }).optional()

export const LogsQuery = z.object({
  sql: Text.max(SQL_LENGTH_MAX).optional().meta({ description: 'A single SELECT statement. Default: the edge logs' }),
  iso_timestamp_start: Moment.meta({ description: 'Default: one minute before the end' }),
  iso_timestamp_end: Moment.meta({ description: 'Default: now. At most 24 hours after the start' }),
})

export const Interval = z.enum(['15min', '30min', '1hr', '3hr', '1day', '3day', '7day'])

export const ApiCountsQuery = z.object({ interval: Interval.default('1day') })

export const FunctionStatsQuery = z.object({
  interval: Interval.extract(['15min', '1hr', '3hr', '1day']),
  function_id: Text.meta({ description: 'The result is empty if the function does not exist' }),
})

/** `error` describes a problem of the query; the result is then empty. */
const resultOf = <T extends z.ZodType>(row: T) => z.object({ result: z.array(row), error: z.string().optional() })

export const AnalyticsAnswer = resultOf(z.record(z.string(), z.unknown())).meta({ id: 'AnalyticsResponse' })

export const ApiCounts = resultOf(
  z.object({
    timestamp: z.string(),
    total_auth_requests: z.int(),
    total_realtime_requests: z.int(),
    total_rest_requests: z.int(),
    total_storage_requests: z.int(),
  }),
).meta({ id: 'UsageApiCounts' })

export const RequestCount = resultOf(z.object({ count: z.int() })).meta({ id: 'UsageRequestCount' })

export const FunctionStats = resultOf(
  z.object({
    timestamp: z.string(),
    requests_count: z.int(),
    success_count: z.int(),
    redirect_count: z.int(),
    client_err_count: z.int(),
    server_err_count: z.int(),
    avg_execution_time: z.number().meta({ description: 'In milliseconds' }),
    max_execution_time: z.int(),
    log_count: z.int(),
    log_info_count: z.int(),
    log_warn_count: z.int(),
    log_error_count: z.int(),
  }),
).meta({ id: 'FunctionStats' })

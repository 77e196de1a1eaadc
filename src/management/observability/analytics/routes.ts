import * as z from 'zod'
import { get, text } from '../../kernel/route.ts'
import { getLogs } from './logs.ts'
import { getMetrics } from './metrics.ts'
import {
  AnalyticsAnswer,
  ApiCounts,
  ApiCountsQuery,
  FunctionStats,
  FunctionStatsQuery,
  LogsQuery,
  RequestCount,
} from './schema.ts'
import { getApiCounts, getFunctionStats, getRequestCount } from './usage.ts'

const LOGS =
  'Logs contain Postgres messages, calls and output of functions and workers, worker builds and branch runs. Returns at most 1,000 rows.'

export const analyticsRoutes = [
  get('/v1/projects/{ref}/analytics/endpoints/logs.all', {
    id: 'v1-get-project-logs',
    summary: 'Query the logs of a project',
    description: LOGS,
    scope: 'analytics:read',
    limit: 'logsAll',
    query: LogsQuery,
    returns: AnalyticsAnswer,
    handle: ({ ctx, project, query }) => getLogs(ctx, project, query),
  }),

  get('/v1/projects/{ref}/analytics/endpoints/logs', {
    id: 'v1-query-project-logs',
    summary: 'Query the logs of a project in a single table',
    description: LOGS,
    scope: 'analytics:read',
    limit: 'logs',
    query: LogsQuery,
    returns: AnalyticsAnswer,
    handle: ({ ctx, project, query }) => getLogs(ctx, project, query),
  }),

  get('/v1/projects/{ref}/analytics/endpoints/metrics', {
    id: 'v1-get-project-metrics',
    summary: "Get a project's database metrics in the Prometheus text format",
    description:
      'Includes connections, transactions, size, cache, WAL, CPU, memory and replica lag. For a suspended database, returns only its state.',
    scope: 'analytics:read',
    limit: 'metrics',
    returns: text('text/plain; charset=utf-8', z.string()),
    errors: ['bad_request.driver', 'service_unavailable.project_database'],
    handle: ({ ctx, project }) => getMetrics(ctx, project),
  }),

  get('/v1/projects/{ref}/analytics/endpoints/usage.api-counts', {
    id: 'v1-get-project-usage-api-count',
    summary: "Count requests to a project's services",
    description:
      'Counts per minute for intervals up to 3 hours, otherwise per hour. Counts for Auth and Realtime are zero: this installation does not run them.',
    scope: 'any caller',
    permission: 'analytics:read',
    limit: 'apiCounts',
    query: ApiCountsQuery,
    returns: ApiCounts,
    handle: ({ ctx, project, query }) => getApiCounts(ctx, project, query.interval),
  }),

  get('/v1/projects/{ref}/analytics/endpoints/usage.api-requests-count', {
    id: 'v1-get-project-usage-request-count',
    summary: 'Count requests to a project in the last day',
    description: 'Counts requests to storage, the Data API, functions and workers.',
    scope: 'any caller',
    permission: 'analytics:read',
    limit: 'requestCount',
    returns: RequestCount,
    handle: ({ ctx, project }) => getRequestCount(ctx, project),
  }),

  get('/v1/projects/{ref}/analytics/endpoints/functions.combined-stats', {
    id: 'v1-get-project-function-combined-stats',
    summary: 'Count calls and log lines of a function',
    description: 'Counts per minute for intervals up to 3 hours, otherwise per hour.',
    scope: 'any caller',
    permission: 'analytics:read',
    query: FunctionStatsQuery,
    returns: FunctionStats,
    handle: ({ ctx, project, query }) => getFunctionStats(ctx, project, query),
  }),
]

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
  'Messages of Postgres, calls of functions and workers, what they print, builds of workers and runs of branches. At most 1,000 rows come.'

export const analyticsRoutes = [
  get(
    '/v1/projects/{ref}/analytics/endpoints/logs.all',
    {
      id: 'v1-get-project-logs',
      summary: 'Query the logs of a project',
      description: LOGS,
      scope: 'analytics:read',
      limit: 'logs',
      query: LogsQuery,
      returns: AnalyticsAnswer,
    },
    ({ ctx, project, query }) => getLogs(ctx, project, query),
  ),

  get(
    '/v1/projects/{ref}/analytics/endpoints/logs',
    {
      id: 'v1-query-project-logs',
      summary: 'Query the logs of a project in one table',
      description: LOGS,
      scope: 'analytics:read',
      limit: 'logs',
      query: LogsQuery,
      returns: AnalyticsAnswer,
    },
    ({ ctx, project, query }) => getLogs(ctx, project, query),
  ),

  get(
    '/v1/projects/{ref}/analytics/endpoints/metrics',
    {
      id: 'v1-get-project-metrics',
      summary: "Get what a project's database uses now, in the text format of Prometheus",
      description:
        'Connections, transactions, size, cache, WAL, CPU, memory and the lag of replicas; of a database that sleeps, its state.',
      scope: 'analytics:read',
      limit: 'logs',
      returns: text('text/plain; charset=utf-8', z.string()),
      errors: ['bad_request.driver', 'service_unavailable.project_database'],
    },
    ({ ctx, project }) => getMetrics(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/analytics/endpoints/usage.api-counts',
    {
      id: 'v1-get-project-usage-api-count',
      summary: 'Count the requests to the services of a project',
      description:
        'By the minute up to 3 hours back, else by the hour. No Auth, Realtime or Data API runs here that could count any.',
      scope: 'any caller',
      permission: 'analytics:read',
      limit: 'apiCounts',
      query: ApiCountsQuery,
      returns: ApiCounts,
    },
    ({ ctx, project, query }) => getApiCounts(ctx, project, query.interval),
  ),

  get(
    '/v1/projects/{ref}/analytics/endpoints/usage.api-requests-count',
    {
      id: 'v1-get-project-usage-request-count',
      summary: 'Count all requests to a project in the last day',
      description: 'To storage, functions and workers.',
      scope: 'any caller',
      permission: 'analytics:read',
      limit: 'requestCount',
      returns: RequestCount,
    },
    ({ ctx, project }) => getRequestCount(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/analytics/endpoints/functions.combined-stats',
    {
      id: 'v1-get-project-function-combined-stats',
      summary: 'Count the calls of a function and what they printed',
      description: 'By the minute up to 3 hours back, else by the hour.',
      scope: 'any caller',
      permission: 'analytics:read',
      query: FunctionStatsQuery,
      returns: FunctionStats,
    },
    ({ ctx, project, query }) => getFunctionStats(ctx, project, query),
  ),
]

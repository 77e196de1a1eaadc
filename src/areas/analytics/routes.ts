import { get } from '../../http/route.ts'
import { getLogs } from './logs.ts'
import { AnalyticsAnswer, LogsQuery } from './schema.ts'

const LOGS = 'Calls of functions and workers, what they print, builds of workers and runs of branches. At most 1,000 rows come.'

export const analyticsRoutes = [
  get('/v1/projects/{ref}/analytics/endpoints/logs.all', {
    id: 'v1-get-project-logs', summary: 'Query the logs of a project',
    description: LOGS,
    scope: 'analytics:read', limit: 'logs', query: LogsQuery, returns: AnalyticsAnswer,
  }, ({ ctx, project, query }) => getLogs(ctx, project, query)),

  get('/v1/projects/{ref}/analytics/endpoints/logs', {
    id: 'v1-query-project-logs', summary: 'Query the logs of a project in one table',
    description: LOGS,
    scope: 'analytics:read', limit: 'logs', query: LogsQuery, returns: AnalyticsAnswer,
  }, ({ ctx, project, query }) => getLogs(ctx, project, query)),
]

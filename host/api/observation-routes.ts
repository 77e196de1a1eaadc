import type { InstancePool } from '../instances/instances.ts'
import { LINES_MAX, logEnd, readLog } from '../logs/log-file.ts'
import { readMetrics } from '../metrics/metrics.ts'
import { prometheusText } from '../metrics/prometheus.ts'
import { type Route, route } from './api.ts'
import { ApiFailure } from './http.ts'

/** Logs and metrics of the servers. None of these routes wakes an instance. */
export const observationRoutes = ({ pool }: { pool: InstancePool }): Route[] => [
  route('GET', '/logs', () =>
    Promise.all(pool.list().map(async (instance) => ({ name: instance.name, end: await logEnd(instance) }))),
  ),
  route('GET', '/instances/{name}/logs', async ({ name, query }) => {
    const limit = Number(query.get('limit') ?? LINES_MAX)
    if (!Number.isInteger(limit) || limit < 1 || limit > LINES_MAX)
      throw new ApiFailure(400, 'invalid', `Invalid limit: must be from 1 to ${LINES_MAX}`)
    return readLog(pool.require(name), query.get('since') ?? undefined, limit)
  }),
  route('GET', '/instances/{name}/metrics', async ({ name, query }) => {
    const metrics = await readMetrics(pool.require(name))
    return query.get('format') === 'prometheus' ? prometheusText([metrics]) : metrics
  }),
  route('GET', '/metrics', async () => prometheusText(await Promise.all(pool.list().map(readMetrics)))),
]

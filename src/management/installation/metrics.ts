import type { Hono } from 'hono'
import manifest from '../../../package.json' with { type: 'json' }
import type { SystemCtx } from '../../ctx.ts'
import { ApiError } from '../../platform/http/error.ts'
import { counterFamilies } from '../../platform/metrics/counter-families.ts'
import { flushCounts } from '../../platform/metrics/counters.ts'
import { CONTENT_TYPE, type Family, openMetricsText } from '../../platform/metrics/openmetrics.ts'
import { isSameSecret } from '../../platform/secrets/equal.ts'
import type { AppEnv } from '../kernel/app-env.ts'
import { databaseFamilies, healthFamilies, machineFamilies, processFamilies } from './gauge-families.ts'
import { readGauges } from './gauges.ts'
import type { HealthReporter } from './health.ts'
import { cacheCheck, runCheck } from './health-checks.ts'

const CACHE_MS = 5_000

/** Mounts the metrics of the installation. Without METRICS_TOKEN the endpoint does not exist. */
export function mountMetrics(app: Hono<AppEnv>, health: HealthReporter): void {
  const read = cacheCheck((ctx) => readFamilies(ctx, health), CACHE_MS)
  app.get('/metrics', async (c, next) => {
    const { ctx } = c.var
    const { METRICS_TOKEN: token } = ctx.config
    if (token === undefined) return next()
    if (!isSameSecret(c.req.header('authorization') ?? '', `Bearer ${token}`)) {
      c.header('www-authenticate', 'Bearer realm="metrics"')
      throw new ApiError('unauthorized', { detail: 'send METRICS_TOKEN as "Authorization: Bearer …"' })
    }
    // Counters are never cached: monitors compute rates from the time between two scrapes.
    const counters = await runCheck(ctx, 'metrics_counters', () => flushCounts(ctx.bindings))
    const families = [...(await read(ctx)), ...(counters.value ? counterFamilies(counters.value) : [])]
    return c.body(openMetricsText(families), 200, { 'content-type': CONTENT_TYPE, 'cache-control': 'no-store' })
  })
}

const BUILD: Family = {
  name: 'build',
  type: 'info',
  help: 'Version of Pilothouse.',
  samples: [{ labels: { version: manifest.version }, value: 1 }],
}

/** Reads all metrics. Those that cannot be read are left out, and the error is logged. */
async function readFamilies(ctx: SystemCtx, health: HealthReporter): Promise<Family[]> {
  const part = async <T>(name: string, work: () => Promise<T | undefined>, toFamilies: (value: T) => Family[]) => {
    const { value } = await runCheck(ctx, `metrics_${name}`, work)
    return value === undefined ? [] : toFamilies(value)
  }
  const parts = await Promise.all([
    health(ctx).then(healthFamilies),
    part('database', () => readGauges(ctx), databaseFamilies),
    part('hosts', async () => ctx.engine.machines?.(), machineFamilies),
    part('processes', () => readMemory(ctx), processFamilies),
  ])
  return [BUILD, ...parts.flat()]
}

/** Reads the memory of the processes; undefined if they are unknown, as on Cloudflare. */
async function readMemory({ bindings: { MACHINE } }: SystemCtx): Promise<Record<string, number> | undefined> {
  const response = await MACHINE?.fetch('http://machine/memory')
  return response?.json()
}

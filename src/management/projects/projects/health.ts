import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { EngineHealth } from '../../../engine/engine.ts'
import { SqlError } from '../../../engine/engine-errors.ts'
import { healthWithTimeout } from '../../../engine/health.ts'
import { SCHEMA_CHANGES } from '../../../engine/storage/schema-changes.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { ACTIVE } from './project-states.ts'
import { HEALTH_TIMEOUT_MS, type Health, type HealthQuery } from './schema.ts'

type Reply = z.input<typeof Health>[number]
type HealthCheck = (ctx: Ctx, project: ProjectAccess, timeoutMs: number) => Promise<EngineHealth>

const database: HealthCheck = ({ engine }, { ref }, timeoutMs) => engine.health(ref, timeoutMs)

/** Creates the check of a service that runs with the API: its role must be able to read its tables. */
const tablesOf =
  (service: 'storage' | 'dataApi', tables: readonly string[]): HealthCheck =>
  async (ctx, project, timeoutMs) => {
    const health = await database(ctx, project, timeoutMs)
    // A query would wake the database.
    if (!health.healthy || health.isAsleep) return health
    return healthWithTimeout(timeoutMs, checkTables(ctx, project, service, tables))
  }

/** Health checks of the services of this installation. Other services are left out, as clients wait for unhealthy ones. */
const HEALTH_CHECKS: Partial<Record<Reply['name'], HealthCheck>> = {
  ...{ db: database, db_postgres_user: database },
  storage: tablesOf('storage', ['storage.buckets', 'storage.objects']),
  rest: tablesOf('dataApi', [SCHEMA_CHANGES]),
}

export async function getServicesHealth(
  ctx: Ctx,
  project: ProjectAccess,
  { services, timeout_ms }: z.output<typeof HealthQuery>,
): Promise<Reply[]> {
  const timeoutMs = timeout_ms || HEALTH_TIMEOUT_MS
  const states = new Map<HealthCheck, ReturnType<typeof stateOf>>()
  const replies = [...new Set(services)].flatMap((name) => {
    const check = HEALTH_CHECKS[name]
    if (!check) return []
    const state = states.get(check) ?? stateOf(project, () => check(ctx, project, timeoutMs))
    states.set(check, state)
    return state.then((health) => ({ name, ...health }))
  })
  return Promise.all(replies)
}

async function stateOf({ status }: ProjectAccess, check: () => Promise<EngineHealth>) {
  if (status === 'COMING_UP' || status === 'RESTORING' || status === 'RESTARTING') {
    return { healthy: false, status: 'COMING_UP' as const }
  }
  if (!ACTIVE.includes(status)) {
    return { healthy: false, status: 'UNHEALTHY' as const, error: `the project is ${status}` }
  }
  const { healthy, error } = await check()
  if (healthy) return { healthy, status: 'ACTIVE_HEALTHY' as const }
  return { healthy, status: 'UNHEALTHY' as const, ...(error && { error }) }
}

async function checkTables(
  ctx: Ctx,
  project: ProjectAccess,
  service: 'storage' | 'dataApi',
  tables: readonly string[],
): Promise<EngineHealth> {
  const runnerPassword = await runnerPasswordOf(ctx, project)
  const statements = tables.map((table) => ({ text: `select from ${table} limit 1`, params: [] }))
  try {
    await ctx.engine.runBatch({ ref: project.ref, runnerPassword, service, statements })
    return { healthy: true }
  } catch (error) {
    if (!(error instanceof SqlError)) throw error
    return { healthy: false, error: error.message }
  }
}

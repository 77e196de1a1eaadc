import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { type EngineHealth, SqlError } from '../../../engine/engine.ts'
import { healthWithTimeout } from '../../../engine/health.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { ACTIVE } from './region-values.ts'
import { HEALTH_TIMEOUT_MS, type Health, type HealthQuery } from './schema.ts'

type Reply = z.input<typeof Health>[number]
type Look = (ctx: Ctx, project: ProjectAccess, timeoutMs: number) => Promise<EngineHealth>

const database: Look = ({ engine }, { ref }, timeoutMs) => engine.health(ref, timeoutMs)

/** The storage server runs wherever this does; a project's own part of it is its tables. */
const storage: Look = async (ctx, project, timeoutMs) => {
  const health = await database(ctx, project, timeoutMs)
  // To look would wake it.
  if (!health.healthy || health.isAsleep) return health
  return healthWithTimeout(timeoutMs, storageTables(ctx, project))
}

/** The services of this installation. Others are left out of a reply that has some of these: clients wait for what is unhealthy. */
const LOOKS: Partial<Record<Reply['name'], Look>> = { db: database, db_postgres_user: database, storage }

export async function getServicesHealth(
  ctx: Ctx,
  project: ProjectAccess,
  { services, timeout_ms }: z.output<typeof HealthQuery>,
): Promise<Reply[]> {
  if (!services.some((name) => LOOKS[name])) {
    const message = `this installation has no ${services.join(', ')}: must include ${Object.keys(LOOKS).join(', ')}`
    throw new ApiError('bad_request.validation_failed', {
      issues: [{ field: 'query.services', code: 'refused', message }],
    })
  }
  const timeoutMs = timeout_ms || HEALTH_TIMEOUT_MS
  const states = new Map<Look, ReturnType<typeof stateOf>>()
  const asked = [...new Set(services)].flatMap((name) => {
    const look = LOOKS[name]
    if (!look) return []
    const state = states.get(look) ?? stateOf(project, () => look(ctx, project, timeoutMs))
    states.set(look, state)
    return state.then((told) => ({ name, ...told }))
  })
  return Promise.all(asked)
}

async function stateOf({ status }: ProjectAccess, look: () => Promise<EngineHealth>) {
  if (status === 'COMING_UP' || status === 'RESTORING' || status === 'RESTARTING') {
    return { healthy: false, status: 'COMING_UP' as const }
  }
  if (!ACTIVE.includes(status)) {
    return { healthy: false, status: 'UNHEALTHY' as const, error: `the project is ${status}` }
  }
  const { healthy, error } = await look()
  if (healthy) return { healthy, status: 'ACTIVE_HEALTHY' as const }
  return { healthy, status: 'UNHEALTHY' as const, ...(error && { error }) }
}

const TABLES = ['storage.buckets', 'storage.objects']

async function storageTables(ctx: Ctx, project: ProjectAccess): Promise<EngineHealth> {
  const runnerPassword = await runnerPasswordOf(ctx, project)
  const statements = TABLES.map((table) => ({ text: `select from ${table} limit 1`, params: [] }))
  try {
    await ctx.engine.runBatch({ ref: project.ref, runnerPassword, statements })
    return { healthy: true }
  } catch (error) {
    if (!(error instanceof SqlError)) throw error
    return { healthy: false, error: error.message }
  }
}

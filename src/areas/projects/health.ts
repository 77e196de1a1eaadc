import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Ctx } from '../../env.ts'
import { HEALTH_TIMEOUT_MS, type Health, type HealthQuery } from './schema.ts'
import { ACTIVE } from './values.ts'

type Reply = z.input<typeof Health>[number]

/** The services that a project has here; others that a client asks for are not in the reply, as they do not exist. */
const PRESENT: ReadonlySet<Reply['name']> = new Set(['db', 'db_postgres_user'])

export async function getServicesHealth(
  { engine }: Ctx,
  project: ProjectAccess,
  { services, timeout_ms }: z.output<typeof HealthQuery>,
): Promise<Reply[]> {
  const asked = [...new Set(services)].filter((name) => PRESENT.has(name))
  if (asked.length === 0) return []
  const state = await databaseHealth(engine, project, timeout_ms)
  return asked.map((name) => ({ name, ...state }))
}

async function databaseHealth(engine: Ctx['engine'], { ref, status }: ProjectAccess, timeoutMs: number) {
  if (status === 'COMING_UP' || status === 'RESTORING' || status === 'RESTARTING') {
    return { healthy: false, status: 'COMING_UP' as const }
  }
  if (!ACTIVE.includes(status)) {
    return { healthy: false, status: 'UNHEALTHY' as const, error: `the project is ${status}` }
  }
  const { healthy, error } = await engine.health(ref, timeoutMs || HEALTH_TIMEOUT_MS)
  if (healthy) return { healthy, status: 'ACTIVE_HEALTHY' as const }
  return { healthy, status: 'UNHEALTHY' as const, ...(error && { error }) }
}

import { and, eq, isNull, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { type ProjectStatus, projects, type ServedWorker, workers } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { prepareOnce } from '../../platform/db/client.ts'
import { recordChange } from '../runtime/processes/program-changes.ts'

/** The version of a worker that its instances must run. */
export interface Plan extends ServedWorker {
  workerId: string
  ref: string
  /** Version of the variables; changes whenever their values change. */
  environment: string
}

/** Version of a project's variables: covers its secrets and its database password. */
export const environmentVersion = ({
  secretsGeneration,
  sealedPassword,
}: Pick<typeof projects.$inferSelect, 'secretsGeneration' | 'sealedPassword'>): string =>
  `${secretsGeneration}:${sealedPassword.slice(-8)}`

export interface FoundPlan {
  plan: Plan
  /** Status of the project. */
  status: ProjectStatus
}

/** Time for which a plan is cached, and longest delay until a new deployment takes requests. */
const CACHED_MS = 1_000
const CACHED_MAX = 10_000
const cache = new BoundedMap<string, { found: FoundPlan; until: number }>(CACHED_MAX)
let changes = 0

const servedWorker = prepareOnce((db) =>
  db
    .select({
      workerId: workers.id,
      served: workers.served,
      secretsGeneration: projects.secretsGeneration,
      sealedPassword: projects.sealedPassword,
      status: projects.status,
    })
    .from(workers)
    .innerJoin(projects, eq(projects.ref, workers.projectRef))
    .where(
      and(
        eq(workers.projectRef, sql.placeholder('ref')),
        eq(workers.name, sql.placeholder('name')),
        isNull(workers.deletedAt),
        isNull(projects.removedAt),
      ),
    )
    .prepare('served_worker'),
)

/** Returns undefined if the worker does not exist or serves nothing. `isFresh` bypasses the cache. */
export async function findPlan(
  createReader: () => Pick<SystemCtx, 'db'>,
  ref: string,
  name: string,
  { isFresh = false } = {},
): Promise<FoundPlan | undefined> {
  const key = `${ref}/${name}`
  const now = Date.now()
  const known = cache.get(key)
  if (known && now < known.until && !isFresh) return known.found
  const before = changes
  const [row] = await servedWorker(createReader().db).execute({ ref, name })
  // Absence is not cached: a worker is often called right after its first deployment.
  if (!row?.served) return undefined
  const { workerId, served, status } = row
  const found = { plan: { ...served, workerId, ref, environment: environmentVersion(row) }, status }
  // A row read before a change must not be cached after it.
  if (changes !== before) return found
  cache.set(key, { found, until: now + CACHED_MS })
  return found
}

/** Evicts the plan from the cache of this isolate: call it after changing the worker. */
export function forgetPlan(ref: string, name: string): void {
  recordChange(ref)
  changes += 1
  cache.delete(`${ref}/${name}`)
}

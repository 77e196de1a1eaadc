import { and, eq, isNull, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { type ProjectStatus, projects, type ServedWorker, workers } from '../../model/tables/index.ts'
import { prepareOnce } from '../../platform/db/client.ts'
import { recordChange } from '../runtime/processes/program-changes.ts'

/** What the instances of a worker are to be. */
export interface Plan extends ServedWorker {
  workerId: string
  ref: string
  /** Of what its environment holds: another one whenever that has changed. */
  environment: string
}

/** Its secrets, and the password of its database. */
export const environmentVersion = ({
  secretsGeneration,
  sealedPassword,
}: Pick<typeof projects.$inferSelect, 'secretsGeneration' | 'sealedPassword'>): string =>
  `${secretsGeneration}:${sealedPassword.slice(-8)}`

export interface FoundPlan {
  plan: Plan
  /** Of the project. */
  status: ProjectStatus
}

/** So long may an isolate go by what it saw: a new deployment takes requests this much later at most. */
const KEPT_MS = 1_000
const KEPT_MAX = 10_000
const kept = new Map<string, { found: FoundPlan; until: number }>()
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

/** One statement a second at most for each worker and isolate, unless the plan of now is wanted; undefined where nothing is served. */
export async function findPlan(
  { db }: SystemCtx,
  ref: string,
  name: string,
  { isFresh = false } = {},
): Promise<FoundPlan | undefined> {
  const key = `${ref}/${name}`
  const now = Date.now()
  const known = kept.get(key)
  if (known && now < known.until && !isFresh) return known.found
  const before = changes
  const [row] = await servedWorker(db).execute({ ref, name })
  // What is not there is looked up each time: who has just deployed it asks for it at once.
  if (!row?.served) return undefined
  const { workerId, served, status } = row
  const found = { plan: { ...served, workerId, ref, environment: environmentVersion(row) }, status }
  // What was read before a change says nothing to those who come after it.
  if (changes !== before) return found
  if (kept.size >= KEPT_MAX) kept.clear()
  kept.set(key, { found, until: now + KEPT_MS })
  return found
}

/** For who has changed it: this isolate goes by the change at once. */
export function forgetPlan(ref: string, name: string): void {
  recordChange(ref)
  changes += 1
  kept.delete(`${ref}/${name}`)
}

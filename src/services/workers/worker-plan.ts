import { sql } from 'drizzle-orm'
import type { ProjectStatus, projects, ServedWorker } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { createRowCache, type Reader, type RowKey, wantedProjects } from '../../platform/db/row-cache.ts'
import { recordChange } from '../runtime/processes/program-changes.ts'

/** The version of a worker that its instances must run. */
export interface Plan extends ServedWorker {
  workerId: string
  ref: string
  /** Version of the variables; changes whenever their values change. */
  environment: string
}

/** Cron expressions by which the version is called. Without instances, nothing can be called. */
export const cronsOf = ({ crons = [], spec }: ServedWorker): string[] => (spec.instances > 0 ? crons : [])

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

type Row = RowKey & FoundPlan

/** Only workers that serve a version are cached: a worker is often called right after its first deployment. */
const plans = createRowCache<Row>({
  read,
  charactersOf: ({ plan }) => plan.image.length + plan.environment.length,
  entriesMax: 10_000,
  charactersMax: 4 * 1024 * 1024,
})

interface ServedRow
  extends RowKey,
    Pick<typeof projects.$inferSelect, 'status' | 'secretsGeneration' | 'sealedPassword'> {
  workerId: string
  served: ServedWorker
}

async function read({ db }: Reader, wanted: readonly RowKey[]): Promise<Row[]> {
  const rows = await rowsOf<ServedRow>(
    db,
    sql`select w.ref, w.name, p.status, p.secrets_generation as "secretsGeneration",
        p.sealed_password as "sealedPassword", s.id as "workerId", s.served
      from ${wantedProjects(wanted)}
      cross join lateral (
        select id, served from workers
        where project_ref = w.ref and name = w.name and deleted_at is null and served is not null limit 1) s`,
  )
  return rows.map(({ ref, name, status, workerId, served, ...project }) => {
    return { ref, name, status, plan: { ...served, workerId, ref, environment: environmentVersion(project) } }
  })
}

/** Returns undefined if the worker does not exist or serves nothing. `isFresh` bypasses the cache. */
export const findPlan = (createReader: () => Reader, key: RowKey, { isFresh = false } = {}) =>
  isFresh ? plans.reload(createReader(), key) : plans.get(createReader, key)

/** Evicts the plans of a project from the cache of this isolate: call it after changing a worker. */
export function forgetPlan(ref: string): void {
  recordChange(ref)
  plans.invalidate(ref)
}

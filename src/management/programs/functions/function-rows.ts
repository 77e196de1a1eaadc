import { and, eq, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Plan } from '../../../config.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { functionDeployments, functions, organizations } from '../../../model/tables/index.ts'
import { type Db, rowsOf, type Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { DeploymentRow, FunctionRow } from './convert.ts'

/** The maximum number of functions by plan; other plans have no limit. */
export const FUNCTIONS_MAX: Partial<Record<Plan, number>> = { free: 100, pro: 500, team: 1_000 }

type Project = Pick<ProjectAccess, 'ref' | 'organizationId'>

export const bySlug = (ref: string, slug: string) => and(eq(functions.projectRef, ref), eq(functions.slug, slug))

export interface Deployed {
  row: FunctionRow
  deployment: DeploymentRow
}

export const selectDeployed = (db: Pick<Db, 'select'>) =>
  db
    .select({ row: functions, deployment: functionDeployments })
    .from(functions)
    .innerJoin(functionDeployments, eq(functionDeployments.id, functions.deploymentId))

interface Usage {
  plan: Plan
  count: number
}

async function readUsage(
  writer: Pick<Writer, 'execute'>,
  { ref, organizationId }: Project,
): Promise<Usage | undefined> {
  const [found] = await rowsOf<Usage>(
    writer,
    sql`select plan, (select count(*)::int from ${functions} where ${functions.projectRef} = ${ref}) as count
      from ${organizations} where ${eq(organizations.id, organizationId)}`,
  )
  return found
}

export async function requireFunctionQuota(
  writer: Pick<Writer, 'execute'>,
  project: Project,
  added: number,
): Promise<void> {
  const usage = await readUsage(writer, project)
  if (usage) requireWithinPlan(usage, added)
}

function requireWithinPlan({ plan, count }: Usage, added: number): void {
  const max = FUNCTIONS_MAX[plan]
  if (max === undefined || count + added <= max) return
  throw new ApiError('payment_required.functions', { detail: `the plan ${plan} allows at most ${max}` })
}

/** Finds a function by slug. If there is none, throws before any work if the plan allows no further function. */
export async function findFunctionOrQuota(
  { db }: SystemCtx,
  project: Project,
  slug: string,
): Promise<Deployed | undefined> {
  const [[found], usage] = await Promise.all([
    selectDeployed(db).where(bySlug(project.ref, slug)),
    readUsage(db, project),
  ])
  if (!found && usage) requireWithinPlan(usage, 1)
  return found
}

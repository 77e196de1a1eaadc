import { eq } from 'drizzle-orm'
import { PLANS, type Plan } from '../../../config.ts'
import { organizations } from '../../../model/tables/index.ts'
import type { Db, Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'

/** The smallest plan that includes each feature. A smaller plan is refused with the error `payment_required.<feature>`. */
const SMALLEST_PLAN = {
  branching: 'pro',
  backup_schedule: 'pro',
  log_drains: 'pro',
  assertions: 'team',
  private_link: 'team',
  members: 'enterprise',
} as const satisfies Record<string, Plan>
type PlanFeature = keyof typeof SMALLEST_PLAN

export const planIncludes = (plan: Plan, feature: PlanFeature): boolean =>
  PLANS.indexOf(plan) >= PLANS.indexOf(SMALLEST_PLAN[feature])

/** Throws `payment_required.<feature>` unless the plan includes the feature. */
export function requirePlan({ plan }: { plan: Plan }, feature: PlanFeature): void {
  if (!planIncludes(plan, feature)) throw new ApiError(`payment_required.${feature}`, { detail: `its plan is ${plan}` })
}

/** Reads the plan of the organization and requires that it includes the feature. */
export async function requireOrganizationPlan(
  db: Pick<Db | Writer, 'select'>,
  organizationId: string,
  feature: PlanFeature,
): Promise<void> {
  requirePlan(requireRow(await selectPlan(db, organizationId)), feature)
}

/** Locks the plan too, so that a change of plan that would end what the transaction creates waits for its commit. */
export async function requireLockedPlan(tx: Writer, organizationId: string, feature: PlanFeature): Promise<void> {
  requirePlan(requireRow(await selectPlan(tx, organizationId).for('share')), feature)
}

const selectPlan = (db: Pick<Db | Writer, 'select'>, organizationId: string) =>
  db.select({ plan: organizations.plan }).from(organizations).where(eq(organizations.id, organizationId))

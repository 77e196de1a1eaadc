import { PLANS, type Plan } from '../../../config.ts'
import { ApiError } from '../../../platform/http/error.ts'

/** Invitations and roles through the API are for these plans; members can be removed on all of them. */
export const managesMembers = (plan: Plan): boolean => PLANS.indexOf(plan) >= PLANS.indexOf('enterprise')

export function requirePlan({ plan }: { plan: Plan }): void {
  if (!managesMembers(plan)) throw new ApiError('payment_required.members', { detail: `its plan is ${plan}` })
}

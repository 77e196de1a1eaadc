import { PLANS } from '../../../model/roles.ts'

type Plan = (typeof PLANS)[number]

export const coversPrivateLink = (plan: Plan): boolean => PLANS.indexOf(plan) >= PLANS.indexOf('team')

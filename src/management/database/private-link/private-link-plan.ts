import { PLANS, type Plan } from '../../../config.ts'

export const coversPrivateLink = (plan: Plan): boolean => PLANS.indexOf(plan) >= PLANS.indexOf('team')

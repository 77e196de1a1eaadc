import type { PLANS } from '../../../model/roles.ts'

/** On which plans log drains can be created; those that exist go on, whatever the plan becomes. */
export const coversLogDrains = (plan: (typeof PLANS)[number]): boolean => plan !== 'free'

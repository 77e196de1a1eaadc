import type { Plan } from '../../../config.ts'

/** On which plans log drains can be created; those that exist go on, whatever the plan becomes. */
export const coversLogDrains = (plan: Plan): boolean => plan !== 'free'

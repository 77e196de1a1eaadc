import { setNewest } from '../../platform/bounded-map.ts'

const PROJECTS_MAX = 10_000

interface Allowance {
  /** What a project may take at once. */
  max: number
  /** How much of it fills up again. */
  perMinute: number
}

/** Bounds what each project may add to the control database: a token bucket for each. Returns false where too little is left. */
export function createAllowance({ max, perMinute }: Allowance) {
  const left = new Map<string, { amount: number; at: number }>()
  return function take(projectRef: string, amount: number, now: number): boolean {
    const known = left.get(projectRef) ?? { amount: max, at: now }
    const filled = (Math.max(0, now - known.at) / 60_000) * perMinute
    const available = Math.min(max, known.amount + filled)
    if (amount > available) return false
    setNewest(left, projectRef, { amount: available - amount, at: now }, PROJECTS_MAX)
    return true
  }
}

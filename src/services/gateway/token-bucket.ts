import { BoundedMap } from '../../platform/bounded-map.ts'

const PROJECTS_MAX = 10_000

interface Bucket {
  /** The capacity: what a project may take at once. */
  max: number
  /** The refill rate. */
  perMinute: number
}

/** Bounds what each project adds to the control database, with one token bucket per project. `take` returns false if too little is left. */
export function createTokenBuckets({ max, perMinute }: Bucket) {
  const left = new BoundedMap<string, { amount: number; at: number }>(PROJECTS_MAX)
  return function take(projectRef: string, amount: number, now: number): boolean {
    const known = left.get(projectRef) ?? { amount: max, at: now }
    const filled = (Math.max(0, now - known.at) / 60_000) * perMinute
    const available = Math.min(max, known.amount + filled)
    if (amount > available) return false
    left.set(projectRef, { amount: available - amount, at: now })
    return true
  }
}

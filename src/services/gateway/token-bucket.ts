import { BoundedMap } from '../../platform/bounded-map.ts'

const KEYS_MAX = 10_000

export interface Bucket {
  /** The capacity: what a key may take at once. */
  max: number
  /** The refill rate. */
  perMinute: number
}

/** Bounds what each key, such as a project, adds to the control database: it has a token bucket. `take` returns false if too little is left. */
export function createTokenBuckets({ max, perMinute }: Bucket) {
  const left = new BoundedMap<string, { amount: number; at: number }>(KEYS_MAX)
  return function take(key: string, amount: number, now: number): boolean {
    const known = left.get(key) ?? { amount: max, at: now }
    const filled = (Math.max(0, now - known.at) / 60_000) * perMinute
    const available = Math.min(max, known.amount + filled)
    if (amount > available) return false
    left.set(key, { amount: available - amount, at: Math.max(now, known.at) })
    return true
  }
}

/** So many attempts in a row without any answer, or that could not be made, and the endpoint gets one probe at a time. */
const FAILURES = 10
const OPEN_MS = 30_000

/**
 * Spares a receiver that does not answer, and our slots with it; and, where it is we who cannot, the database and the resolver.
 * What waits meanwhile stays pending with its attempts unused.
 */
export function createBreaker() {
  let failures = 0
  let until = 0
  return {
    isOpen: (now: number) => now < until,
    openUntil: (now: number) => (now < until ? until : undefined),
    /** After the pause one attempt finds out whether the receiver is back. */
    isProbing: (now: number) => failures >= FAILURES && now >= until,
    /** Somebody asks for an attempt, which may as well be the one that finds out. */
    probe(now: number) {
      until = Math.min(until, now)
    },
    record(outcome: { kind: string }, now: number) {
      if (outcome.kind === 'answered') failures = 0
      if (outcome.kind !== 'failed' && outcome.kind !== 'postponed') return
      failures += 1
      if (failures >= FAILURES) until = now + OPEN_MS
    },
  }
}

export type Breaker = ReturnType<typeof createBreaker>

/** Consecutive attempts without a response, or that could not be made, after which the breaker opens. */
const FAILURES = 10
const OPEN_MS = 30_000

/**
 * A circuit breaker for an endpoint. It protects an unresponsive receiver and the sender's slots or, after local problems, the
 * database and the resolver. Deliveries stay pending meanwhile and use up no attempts.
 */
export function createBreaker() {
  let failures = 0
  let openUntilMs = 0
  return {
    isOpen: (now: number) => now < openUntilMs,
    openUntil: (now: number) => (now < openUntilMs ? openUntilMs : undefined),
    /** Half-open: after the pause, single attempts probe whether the receiver is back. */
    isProbing: (now: number) => failures >= FAILURES && now >= openUntilMs,
    /** Lets the next attempt through as a probe, because a user requested one. */
    probe(now: number) {
      openUntilMs = Math.min(openUntilMs, now)
    },
    record(outcome: { kind: string }, now: number) {
      if (outcome.kind === 'answered') failures = 0
      if (outcome.kind !== 'failed' && outcome.kind !== 'postponed') return
      failures += 1
      if (failures >= FAILURES) openUntilMs = now + OPEN_MS
    },
  }
}

export type Breaker = ReturnType<typeof createBreaker>

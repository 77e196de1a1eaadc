/** So many attempts in a row without any answer, and the endpoint gets one probe at a time. */
const FAILURES = 10
const OPEN_MS = 30_000

/** Spares a receiver that does not answer, and our slots with it. What waits meanwhile stays pending with its attempts unused. */
export function createBreaker() {
  let failures = 0
  let until = 0
  return {
    isOpen: (now: number) => now < until,
    openUntil: (now: number) => (now < until ? until : undefined),
    /** After the pause one attempt finds out whether the receiver is back. */
    isProbing: (now: number) => failures >= FAILURES && now >= until,
    record(outcome: { kind: string }, now: number) {
      if (outcome.kind === 'answered') failures = 0
      if (outcome.kind !== 'failed') return
      failures += 1
      if (failures >= FAILURES) until = now + OPEN_MS
    },
  }
}

export type Breaker = ReturnType<typeof createBreaker>

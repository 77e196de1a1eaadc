/** Calls of one program that wait for an answer, in one isolate of ours. */
const WAITING_MAX = 500
/** No call waits for longer: one that is still there has gone away without a word. */
const WAITING_MS_MAX = 150_000

interface Waiting {
  /** Epoch milliseconds. */
  at: number
}
/** By program, each in the order in which they began. */
const waiting = new Map<string, Set<Waiting>>()

/** What the developer of a program that is not run for a call finds in its log. */
export const PROBLEMS = {
  WORKER_RESOURCE_LIMIT: `${WAITING_MAX} calls of it wait for an answer already`,
  LOOP_DETECTED: 'programs have called each other too often for one call from outside: is there a loop without end?',
} as const

/** Counts a call, or says that no more may wait now. */
export function acquirePermit(programId: string, at: number): { leave(): void } | 'WORKER_RESOURCE_LIMIT' {
  const calls = waiting.get(programId) ?? new Set<Waiting>()
  dropAbandoned(calls, at)
  if (calls.size >= WAITING_MAX) return 'WORKER_RESOURCE_LIMIT'
  const call = { at }
  waiting.set(programId, calls.add(call))
  const leave = () => {
    calls.delete(call)
    if (calls.size === 0 && waiting.get(programId) === calls) waiting.delete(programId)
  }
  return { leave }
}

function dropAbandoned(calls: Set<Waiting>, now: number): void {
  for (const call of calls) {
    if (now - call.at <= WAITING_MS_MAX) return
    calls.delete(call)
  }
}

/** Calls of one program that may wait for a response at a time, in this isolate. */
const WAITING_MAX = 500
/** Longest wait of a call. An older entry was abandoned without being released. */
const WAITING_MS_MAX = 150_000

interface Waiting {
  /** Epoch milliseconds. */
  at: number
}
/** Waiting calls by program, oldest first. */
const waiting = new Map<string, Set<Waiting>>()

/** Log texts for the developer of a program that did not run for a call. */
export const PROBLEMS = {
  WORKER_RESOURCE_LIMIT: `too many concurrent calls: ${WAITING_MAX} already wait for a response`,
  LOOP_DETECTED: 'too many nested calls between programs: check whether they call each other in a loop',
} as const

/** Acquires one of the program's permits to wait for a response. */
export function acquirePermit(programId: string, at: number): { release(): void } | 'WORKER_RESOURCE_LIMIT' {
  const calls = waiting.get(programId) ?? new Set<Waiting>()
  dropAbandoned(calls, at)
  if (calls.size >= WAITING_MAX) return 'WORKER_RESOURCE_LIMIT'
  const call = { at }
  waiting.set(programId, calls.add(call))
  const release = () => {
    calls.delete(call)
    if (calls.size === 0 && waiting.get(programId) === calls) waiting.delete(programId)
  }
  return { release }
}

function dropAbandoned(calls: Set<Waiting>, now: number): void {
  for (const call of calls) {
    if (now - call.at <= WAITING_MS_MAX) return
    calls.delete(call)
  }
}

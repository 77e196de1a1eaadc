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

/** Counts a call, or says that no more may wait now. What it returns ends the call's part in the count. */
export function takePlace(programId: string, at: number): (() => void) | undefined {
  const calls = waiting.get(programId) ?? new Set<Waiting>()
  dropAbandoned(calls, at)
  if (calls.size >= WAITING_MAX) return undefined
  const call = { at }
  waiting.set(programId, calls.add(call))
  return () => {
    calls.delete(call)
    if (calls.size === 0 && waiting.get(programId) === calls) waiting.delete(programId)
  }
}

function dropAbandoned(calls: Set<Waiting>, now: number): void {
  for (const call of calls) {
    if (now - call.at <= WAITING_MS_MAX) return
    calls.delete(call)
  }
}

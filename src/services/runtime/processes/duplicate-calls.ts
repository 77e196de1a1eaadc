/**
 * Ids of recent calls, so that a program runs at most once for each call. If a reused connection closes, the runtime
 * and forward-call.ts send a request without a body again, without knowing whether the program has run. The process
 * that runs the program does know.
 */
import { firstIdOf } from '../../../platform/db/id.ts'

/** Exceeds the time that any call waits for its response. */
const REMEMBERED_MS = 160_000
const IDS_MAX = 50_000

let newer = new Set<string>()
let older = new Set<string>()
/** Epoch milliseconds. */
let newerSince = 0
/** The lowest id that may be remembered: ids begin with a time. */
let leastKnown = ''

/** Returns whether the program may run for the call: false if the id is known, or too old to be remembered. */
export function claimCallId(id: string): boolean {
  if (id < leastKnown || newer.has(id) || older.has(id)) return false
  const now = Date.now()
  if (newer.size >= IDS_MAX || now - newerSince >= REMEMBERED_MS) {
    older = newer
    leastKnown = firstIdOf(newerSince)
    newer = new Set()
    newerSince = now
  }
  newer.add(id)
  return true
}

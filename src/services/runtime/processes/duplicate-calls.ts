/**
 * A program runs once for each call. The runtime sends a request without a body again where a connection that was used before breaks off, and
 * so do we; neither can tell whether the program has run for it. Here that is known: ids of calls that came lately, in the process that
 * runs programs.
 */
import { firstIdOf } from '../../../platform/db/id.ts'

/** Longer than any call waits for its answer. */
const KEPT_MS = 160_000
const KEPT_MAX = 50_000

let newer = new Set<string>()
let older = new Set<string>()
/** In epoch milliseconds. */
let newerSince = 0
/** The least id of a call that is not forgotten if it came. */
let leastKnown = ''

/** Whether nothing has run for the call. What came too long ago is taken for one that has. */
export function claimCallId(id: string): boolean {
  if (id < leastKnown || newer.has(id) || older.has(id)) return false
  const now = Date.now()
  if (newer.size >= KEPT_MAX || now - newerSince >= KEPT_MS) {
    older = newer
    leastKnown = firstIdOf(newerSince)
    newer = new Set()
    newerSince = now
  }
  newer.add(id)
  return true
}

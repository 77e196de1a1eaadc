/**
 * Programs whose process ended unexpectedly. If a program must have caused the end and no other one ever ran in the
 * process, it is held back. Otherwise the programs that may have caused it are suspects, and each runs in a process of
 * its own. A new deployment resets neither state.
 */
import { BoundedMap } from '../../../platform/bounded-map.ts'

const SUSPECTED_MS = 600_000
const HELD_BACK_MS = 15_000
const HELD_BACK_MS_MAX = 900_000
const PROGRAMS_MAX = 20_000

/** End of suspicion, by program. */
const suspects = new BoundedMap<string, number>(PROGRAMS_MAX)
const heldBack = new BoundedMap<string, { until: number; ms: number }>(PROGRAMS_MAX)

export const isSuspect = (program: string, now = Date.now()): boolean => now < (suspects.get(program) ?? 0)
export const isHeldBack = (program: string, now = Date.now()): boolean => now < (heldBack.get(program)?.until ?? 0)

interface ProcessEnd {
  /** All programs that ever ran in the process. */
  ran: readonly string[]
  /** Programs that may have been running at its end. */
  running: readonly string[]
  /** Whether only a program can have caused the end. */
  isFault: boolean
}

export function recordProcessEnd({ ran, running, isFault }: ProcessEnd, now = Date.now()): void {
  if (isFault && ran.length === 1) for (const program of ran) holdBack(program, now)
  else for (const program of running.length > 0 ? running : ran) suspect(program, now + SUSPECTED_MS)
}

function suspect(program: string, until: number): void {
  suspects.set(program, Math.max(until, suspects.get(program) ?? 0))
}

/** Exponential back-off: each time doubles the last one, unless that ended longer ago than a suspicion lasts. */
function holdBack(program: string, now: number): void {
  const last = heldBack.get(program)
  const ms = last && now < last.until + SUSPECTED_MS ? Math.min(2 * last.ms, HELD_BACK_MS_MAX) : HELD_BACK_MS
  heldBack.set(program, { until: now + ms, ms })
  suspect(program, now + ms + SUSPECTED_MS)
}

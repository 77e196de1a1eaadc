/**
 * Which programs may have ended the process that all of them run in. Who was running when it ended is called again with no other suspect
 * beside it, until it has answered; who ends the process then is called no more for a while.
 */

/** A loop may begin in what is left to do after the answer; the process is ended some seconds later. */
const RECENT_MS = 30_000
const SOCKET_MS = 600_000
/** A call that is still there then has gone away without a word. */
const WAITING_MS_MAX = 600_000
const WATCHED_MS = 60_000
const SUSPECTED_MS = 300_000
const BARRED_MS = 60_000
const BARRED_MS_MAX = 3_600_000
/** So long after its bar, a program that was found out no more begins anew. */
const REMEMBERED_MS = 600_000
const FORGIVEN_MS_MAX = 4 * BARRED_MS
const KEPT_MAX = 20_000
/** In the lane at so many ends: however many others there were beside it. */
const ENDS_MAX = 2

/** By program: its calls that are under way. */
const waiting = new Map<string, Set<{ at: number }>>()
/** When it last ended one, the longest ago first. */
const recent = new Map<string, number>()
/** Until when. */
const watched = new Map<string, number>()
const barred = new Map<string, { until: number; ms: number }>()
/** How often it was there when the process ended, lately; and how often it was in the lane. */
const suspected = new Map<string, { times: number; inLane: number; at: number }>()

export const isBarred = (program: string): boolean => Date.now() < (barred.get(program)?.until ?? 0)

export function isWatched(program: string): boolean {
  const until = watched.get(program)
  if (until === undefined || Date.now() < until) return until !== undefined
  watched.delete(program)
  return false
}

type Ended = 'answered' | 'socket' | 'not run'

/** A call begins; what it returns is for its end. A socket goes on for longer than anybody sees it. */
export function noteCall(program: string): (how?: Ended) => void {
  const calls = waiting.get(program) ?? new Set()
  const call = { at: Date.now() }
  waiting.set(program, calls.add(call))
  return (how = 'answered') => {
    if (!calls.delete(call)) return
    if (calls.size === 0 && waiting.get(program) === calls) waiting.delete(program)
    const now = Date.now()
    if (how !== 'not run') noteRecent(program, how === 'socket' ? now + SOCKET_MS : now)
  }
}

/** Of two times the later one holds, as a socket of the program may be open beside its other calls. */
function noteRecent(program: string, at: number): void {
  const known = recent.get(program) ?? 0
  recent.delete(program)
  for (const [oldest, last] of recent) {
    if (Date.now() - last <= RECENT_MS && recent.size < KEPT_MAX) break
    recent.delete(oldest)
  }
  recent.set(program, Math.max(at, known))
}

function dropAbandoned(now: number): void {
  for (const [program, calls] of waiting) {
    for (const call of calls) if (now - call.at > WAITING_MS_MAX) calls.delete(call)
    if (calls.size === 0) waiting.delete(program)
  }
}

/** Whether no other program is known to have run since then. */
export function isAlone(program: string, since: number): boolean {
  dropAbandoned(Date.now())
  for (const other of waiting.keys()) if (other !== program) return false
  for (const [other, at] of recent) if (other !== program && at >= since) return false
  return true
}

/** The process has ended, over whichever of them. */
export function noteEnd(): void {
  const now = Date.now()
  prune(now)
  for (const [program, at] of recent) if (now - at > RECENT_MS) recent.delete(program)
  for (const program of new Set([...waiting.keys(), ...recent.keys()])) {
    const { times, inLane } = suspected.get(program) ?? { times: 0, inLane: 0 }
    add(watched, program, now + WATCHED_MS)
    add(suspected, program, { times: times + 1, inLane, at: now })
  }
}

function prune(now: number): void {
  dropAbandoned(now)
  for (const [program, until] of watched) if (until <= now) watched.delete(program)
  for (const [program, { at }] of suspected) if (now - at > SUSPECTED_MS) suspected.delete(program)
  for (const [program, { until }] of barred) if (now - until > REMEMBERED_MS) barred.delete(program)
}

/** The one that was set the longest ago makes room. */
function add<T>(kept: Map<string, T>, program: string, value: T): void {
  kept.delete(program)
  const [oldest] = kept.keys()
  if (kept.size >= KEPT_MAX && oldest !== undefined) kept.delete(oldest)
  kept.set(program, value)
}

/** Who was there more than once is looked at for longer. */
export const isSuspectAgain = (program: string): boolean => (suspected.get(program)?.times ?? 0) > 1

export const clear = (program: string): unknown => watched.delete(program)

/**
 * The process has ended while this one was in the lane. Where others ran beside it that says too little, until it has happened again.
 * Returns whether it is called no more for a while.
 */
export function blame(program: string, wasAlone: boolean): boolean {
  const now = Date.now()
  const before = suspected.get(program) ?? { times: 1, inLane: 0 }
  const inLane = before.inLane + 1
  add(suspected, program, { ...before, inLane, at: now })
  if (wasAlone || inLane >= ENDS_MAX) bar(program, now)
  else add(watched, program, now + WATCHED_MS)
  return isBarred(program)
}

/** Each time for twice as long. */
function bar(program: string, now: number): void {
  prune(now)
  const ms = Math.min(2 * (barred.get(program)?.ms ?? BARRED_MS / 2), BARRED_MS_MAX)
  add(barred, program, { until: now + ms, ms })
  add(watched, program, now + ms + WATCHED_MS)
}

/** Its developer has done something about it, and may see whether that helped; not without end. */
export function forgive(ref: string): void {
  for (const [program, { ms }] of barred) {
    if (ms <= FORGIVEN_MS_MAX && program.includes(` ${ref}/`)) lift(program)
  }
}

/** For new code, however often the old one was found out. */
export function lift(program: string): void {
  const bar = barred.get(program)
  if (bar) barred.set(program, { ...bar, until: Math.min(bar.until, Date.now()) })
}

/** Seconds from the end of an attempt to the next one; the fifth attempt is the last. */
const DELAYS_S = [10, 30, 90, 270]
export const ATTEMPTS_MAX = DELAYS_S.length + 1
const JITTER = 0.2

export interface Schedule {
  attempt: number
  /** The receiver's Retry-After header. */
  retryAfter?: string | undefined
  /** Epoch milliseconds, needed for a Retry-After date. */
  now: number
  /** A random number from 0 to 1. */
  random: number
}

/** Returns the milliseconds until the next attempt: those of the schedule, or more if Retry-After requests it, at most twice as many. Undefined after the last. */
export function delayAfter({ attempt, retryAfter, now, random }: Schedule): number | undefined {
  const base = DELAYS_S[attempt - 1]
  if (base === undefined) return undefined
  const jittered = base * (1 + JITTER * random)
  const requested = Math.min(secondsOf(retryAfter, now) ?? 0, 2 * base)
  return Math.round(Math.max(jittered, requested) * 1000)
}

function secondsOf(retryAfter: string | undefined, now: number): number | undefined {
  if (retryAfter === undefined) return undefined
  if (/^\d+$/.test(retryAfter.trim())) return Number(retryAfter)
  const date = Date.parse(retryAfter)
  return Number.isNaN(date) ? undefined : (date - now) / 1000
}

/** So long are keys believed before they are fetched again. */
const FRESH_MS = 30 * 60_000
/** A failed attempt is repeated after this part of the time since the keys were seen, so ever more rarely. */
const RETRY_PART = 1 / 6
const RETRY_MS_MIN = 5 * 60_000
const RETRY_MS_MAX = 2 * 3_600_000
/** The part of the time that chance decides, so that what was added at once is not refreshed at once for ever. */
const JITTER = 0.2

const after = (now: Date, ms: number): Date => new Date(now.getTime() + ms * (1 - JITTER * Math.random()))

export const nextRefresh = (now: Date): Date => after(now, FRESH_MS)
export function nextTry(now: Date, seenAt: Date): Date {
  const ms = (now.getTime() - seenAt.getTime()) * RETRY_PART
  return after(now, Math.min(Math.max(ms, RETRY_MS_MIN), RETRY_MS_MAX))
}

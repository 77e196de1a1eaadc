/** The time after which keys are fetched again. */
const FRESH_MS = 30 * 60_000
/** The delay after a failure is this fraction of the age of the keys, so it grows. */
const RETRY_FRACTION = 1 / 6
const RETRY_MS_MIN = 5 * 60_000
const RETRY_MS_MAX = 2 * 3_600_000
/** The maximum fraction by which a delay is shortened at random, so that issuers added together are not always refreshed together. */
const JITTER = 0.2

const after = (now: Date, ms: number): Date => new Date(now.getTime() + ms * (1 - JITTER * Math.random()))

export const nextRefresh = (now: Date): Date => after(now, FRESH_MS)
export function nextRetry(now: Date, seenAt: Date): Date {
  const ms = (now.getTime() - seenAt.getTime()) * RETRY_FRACTION
  return after(now, Math.min(Math.max(ms, RETRY_MS_MIN), RETRY_MS_MAX))
}

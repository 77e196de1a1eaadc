/** So long are keys believed before they are fetched again; a failed attempt is repeated sooner. */
const FRESH_MS = 30 * 60_000
const RETRY_MS = 5 * 60_000
/** The part of the time that chance decides, so that what was added at once is not refreshed at once for ever. */
const JITTER = 0.2

const after = (now: Date, ms: number): Date => new Date(now.getTime() + ms * (1 - JITTER * Math.random()))

export const nextRefresh = (now: Date): Date => after(now, FRESH_MS)
export const nextTry = (now: Date): Date => after(now, RETRY_MS)

import { createTokenBuckets } from '../gateway/token-bucket.ts'

/** Characters of lines waiting to be written, in all and for one project. */
const LENGTH_MAX = 16 * 1024 * 1024
const PROJECT_LENGTH_MAX = 4 * 1024 * 1024

let reserved = 0
const reservedBy = new Map<string, number>()
/**
 * Rate limit of a project's lines: the control database stores them for a week, and anonymous callers can cause them.
 */
const takeFromRateLimit = createTokenBuckets({ max: PROJECT_LENGTH_MAX, perMinute: 1024 * 1024 })

/** Reserves room for text that waits to be written. Returns false if the budget is used up. */
export function reserveBuffer(projectRef: string, length: number, now: number): boolean {
  const own = (reservedBy.get(projectRef) ?? 0) + length
  if (reserved + length > LENGTH_MAX || own > PROJECT_LENGTH_MAX) return false
  if (!takeFromRateLimit(projectRef, length, now)) return false
  reserved += length
  reservedBy.set(projectRef, own)
  return true
}

export function releaseBuffer(projectRef: string, length: number): void {
  reserved -= length
  const own = (reservedBy.get(projectRef) ?? 0) - length
  if (own > 0) reservedBy.set(projectRef, own)
  else reservedBy.delete(projectRef)
}

import { createTokenBuckets } from '../gateway/token-bucket.ts'

/** What lines that are not yet written may take together, and those of one project; in characters. */
const LENGTH_MAX = 16 * 1024 * 1024
const PROJECT_LENGTH_MAX = 4 * 1024 * 1024

let taken = 0
const takenBy = new Map<string, number>()
/** The control database keeps what a project prints for a week, and strangers may call. */
const takePrintable = createTokenBuckets({ max: PROJECT_LENGTH_MAX, perMinute: 1024 * 1024 })

/** False where there is none left. */
export function reserveBuffer(projectRef: string, length: number, now: number): boolean {
  const own = (takenBy.get(projectRef) ?? 0) + length
  if (taken + length > LENGTH_MAX || own > PROJECT_LENGTH_MAX) return false
  if (!takePrintable(projectRef, length, now)) return false
  taken += length
  takenBy.set(projectRef, own)
  return true
}

export function releaseBuffer(projectRef: string, length: number): void {
  taken -= length
  const own = (takenBy.get(projectRef) ?? 0) - length
  if (own > 0) takenBy.set(projectRef, own)
  else takenBy.delete(projectRef)
}

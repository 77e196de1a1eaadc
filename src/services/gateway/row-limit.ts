import { BoundedMap } from '../../platform/bounded-map.ts'
import { type Bucket, createTokenBuckets } from './token-bucket.ts'

const KEYS_MAX = 10_000

/** Rows that a project may add to each log. They are stored for a week, and the number of requests has no limit. */
export const PROJECT_ROWS: Bucket = { max: 5_000, perMinute: 1_000 }

/**
 * Limits the rows of each key. The returned function claims a row, and returns the number of requests since the key's last row that
 * have none. It returns undefined if this request must not have a row either.
 */
export function createRowLimit(bucket: Bucket) {
  const take = createTokenBuckets(bucket)
  const skipped = new BoundedMap<string, number>(KEYS_MAX)
  return function claimRow(key: string, now: number): number | undefined {
    const before = skipped.get(key) ?? 0
    if (!take(key, 1, now)) {
      skipped.set(key, before + 1)
      return undefined
    }
    if (before > 0) skipped.delete(key)
    return before
  }
}

import { type SQL, sql } from 'drizzle-orm'
import type { Db } from './client.ts'
import { rowsOf } from './client.ts'

const PORTION = 5_000
const PORTIONS_MAX = 100

/** Deletes what is due in portions, for at most half a million rows; tells how many are gone. `deletion` takes the size of a portion. */
export async function purgeInPortions(db: Db, deletion: (portion: number) => SQL): Promise<number> {
  let gone = 0
  for (let portion = 0; portion < PORTIONS_MAX; portion++) {
    const statement = sql`with gone as (${deletion(PORTION)} returning 1) select count(*)::int as count from gone`
    const [deleted] = await rowsOf<{ count: number }>(db, statement)
    const count = deleted?.count ?? 0
    gone += count
    if (count < PORTION) break
  }
  return gone
}

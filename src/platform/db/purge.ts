import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import type { Db } from './client.ts'
import { rowsOf } from './client.ts'

const PORTION = 5_000
const PORTIONS_MAX = 100

/** Deletes due rows in portions, half a million at most, and returns their number. `deletion` receives the size of a portion. */
export async function purgeInPortions(db: Db, deletion: (portion: number) => SQL): Promise<number> {
  let total = 0
  for (let portion = 0; portion < PORTIONS_MAX; portion++) {
    const statement = sql`with deleted as (${deletion(PORTION)} returning 1) select count(*)::int as count from deleted`
    const [deleted] = await rowsOf<{ count: number }>(db, statement)
    const count = deleted?.count ?? 0
    total += count
    if (count < PORTION) break
  }
  return total
}

/**
 * Deletes the rows of a table that are due, as `purgeInPortions` does. `order` is the column of an index. The condition is checked
 * twice, because a row may be extended between the read and the lock.
 */
export const purgeRows = (db: Db, table: SQLWrapper, isDue: SQL, order: SQL): Promise<number> =>
  purgeInPortions(
    db,
    (portion) => sql`delete from ${table} where ${isDue} and ctid = any(array(
      select ctid from ${table} where ${isDue} order by ${order} limit ${portion}))`,
  )

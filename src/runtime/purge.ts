import { sql } from 'drizzle-orm'
import { rowsOf } from '../db/client.ts'
import type { SystemCtx } from '../env.ts'

const KEPT_MS = 7 * 86_400_000
const PORTION = 5_000
const PORTIONS_MAX = 100

/** Deletes the calls of programs that are older than a week. */
export async function purgeInvocations({ db, now, log }: SystemCtx): Promise<void> {
  const before = new Date(now().getTime() - KEPT_MS).toISOString()
  let gone = 0
  for (let portion = 0; portion < PORTIONS_MAX; portion++) {
    const deleted = await rowsOf<{ count: number }>(
      db,
      sql`with gone as (delete from invocations where id in (
        select id from invocations where at < ${before} order by at limit ${PORTION}) returning 1)
        select count(*)::int as count from gone`,
    )
    const count = deleted[0]?.count ?? 0
    gone += count
    if (count < PORTION) break
  }
  if (gone > 0) log.info('invocations_purged', { invocations: gone })
}

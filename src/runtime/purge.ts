import { sql } from 'drizzle-orm'
import { purgeInPortions } from '../db/purge.ts'
import type { SystemCtx } from '../env.ts'

export const INVOCATIONS_KEPT_DAYS = 7

/** Deletes the calls of programs that are older than a week. */
export async function purgeInvocations({ db, now, log }: SystemCtx): Promise<void> {
  const before = new Date(now().getTime() - INVOCATIONS_KEPT_DAYS * 86_400_000).toISOString()
  const gone = await purgeInPortions(
    db,
    (portion) =>
      sql`delete from invocations where id in (select id from invocations where at < ${before} order by at limit ${portion})`,
  )
  if (gone > 0) log.info('invocations_purged', { invocations: gone })
}

import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { purgeInPortions } from '../../platform/db/purge.ts'

/** One day more than any query asks for. */
const RETENTION_MS = 8 * 86_400_000

/** Deletes the counts of minutes that are more than eight days ago. */
export async function purgeRequestCounts({ db, now, log }: SystemCtx): Promise<void> {
  const before = new Date(now().getTime() - RETENTION_MS).toISOString()
  const gone = await purgeInPortions(
    db,
    (portion) => sql`delete from request_counts where (project_ref, minute, service) in (
      select project_ref, minute, service from request_counts where minute < ${before} order by minute limit ${portion})`,
  )
  if (gone > 0) log.info('request_counts_purged', { counts: gone })
}

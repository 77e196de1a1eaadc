import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { requestCounts } from '../../model/tables/index.ts'
import { purgeRows } from '../../platform/db/purge.ts'

/** One day more than any query asks for. */
const RETENTION_MS = 8 * 86_400_000

/** Deletes the counts of minutes that are more than eight days ago. */
export async function purgeRequestCounts({ db, now, log }: SystemCtx): Promise<void> {
  const before = new Date(now().getTime() - RETENTION_MS).toISOString()
  const gone = await purgeRows(db, requestCounts, sql`minute < ${before}`, sql`minute`)
  if (gone > 0) log.info('request_counts_purged', { counts: gone })
}

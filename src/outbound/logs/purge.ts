import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { purgeInPortions } from '../../platform/db/purge.ts'

export const LOGS_KEPT_DAYS = 7

type Table = 'invocations' | 'postgres_logs' | 'storage_requests' | 'data_api_requests'

/** Deletes log records older than the retention. */
export async function purgeLogs({ db, now, log }: SystemCtx, table: Table): Promise<void> {
  const before = new Date(now().getTime() - LOGS_KEPT_DAYS * 86_400_000).toISOString()
  const name = sql.identifier(table)
  const deleted = await purgeInPortions(
    db,
    (portion) =>
      sql`delete from ${name} where id in (select id from ${name} where at < ${before} order by at limit ${portion})`,
  )
  if (deleted > 0) log.info(`${table}_purged`, { rows: deleted })
}

import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { purgeRows } from '../../platform/db/purge.ts'

export const LOGS_KEPT_DAYS = 7

/** Returns the time since which log records are kept. */
export const logsKeptSince = (now: Date): Date => new Date(now.getTime() - LOGS_KEPT_DAYS * 86_400_000)

const TABLES = ['invocations', 'postgres_logs', 'storage_requests', 'data_api_requests', 'action_run_logs']

/** Deletes log records older than the retention. */
export async function purgeLogs({ db, now, log }: SystemCtx): Promise<void> {
  const before = logsKeptSince(now()).toISOString()
  await Promise.all(
    TABLES.map(async (table) => {
      const rows = await purgeRows(db, sql.identifier(table), sql`at < ${before}`, sql`at`)
      if (rows > 0) log.info(`${table}_purged`, { rows })
    }),
  )
}

import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { logDrainEntries, logDrains } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { firstIdOf } from '../../platform/db/id.ts'
import { purgeInPortions } from '../../platform/db/purge.ts'
import { forEachConcurrently } from '../../platform/for-each-concurrently.ts'
import { describeError } from '../../platform/http/log.ts'
import { LOGS_KEPT_DAYS } from '../logs/purge.ts'
import { dueDrains } from './store.ts'

const PAGE = 1_000
const CONCURRENCY = 8
const FIRST_ID = '00000000-0000-0000-0000-000000000000'
const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000

/** Wakes the senders of all due drains. */
export async function wakeDrains(ctx: SystemCtx): Promise<void> {
  const { db, databaseNow: now } = ctx
  let page: string[] = []
  do {
    page = await dueDrains(db, now, { after: page.at(-1) ?? FIRST_ID, count: PAGE })
    await forEachConcurrently(page, CONCURRENCY, (id) => wake(ctx, id))
  } while (page.length === PAGE)
}

/** Logs an unreachable sender instead of throwing, so that the others are woken; the next sweep retries. */
async function wake({ bindings: { LOG_DRAIN_SENDERS: senders }, log }: SystemCtx, id: string): Promise<void> {
  try {
    await senders.get(senders.idFromName(id)).wake(id)
  } catch (error) {
    log.error('log_drain_sender_unreachable', { drain: id, error: describeError(error) })
  }
}

const BATCH = 5_000
const BATCHES_MAX = 100

/** Deletes and logs entries older than the retention of logs, which can no longer be sent. */
export async function expireEntries(ctx: SystemCtx): Promise<void> {
  const before = firstIdOf(ctx.now().getTime() - LOGS_KEPT_DAYS * DAY_MS)
  const lost = new Map<string, number>()
  for (let portion = 0; portion < BATCHES_MAX; portion++) {
    const gone = await rowsOf<{ drain: string; rows: number; entries: number }>(
      ctx.db,
      sql`with old as (
          select e.drain_id, e.id from ${logDrains} d cross join lateral (
            select drain_id, id from ${logDrainEntries}
            where drain_id = d.id and id < ${before}::uuid order by id limit ${BATCH}) e
          limit ${BATCH}
        ), gone as (
          delete from ${logDrainEntries} e using old where e.drain_id = old.drain_id and e.id = old.id
          returning e.drain_id, e.rows
        )
        select drain_id as drain, sum(rows)::float8 as rows, count(*)::int as entries from gone group by drain_id`,
    )
    for (const { drain, rows } of gone) lost.set(drain, (lost.get(drain) ?? 0) + rows)
    if (gone.reduce((total, { entries }) => total + entries, 0) < BATCH) break
  }
  for (const [drain, rows] of lost) ctx.log.error('log_drain_rows_lost', { drain, rows, reason: 'expired' })
}

/** Deletes the entries of deleted drains, and the drains once no running statement can refer to them. */
export async function removeDeletedDrains({ db, now }: SystemCtx): Promise<void> {
  await purgeInPortions(
    db,
    (portion) => sql`delete from ${logDrainEntries} where (drain_id, id) in (
      select e.drain_id, e.id from ${logDrains} d cross join lateral (
        select drain_id, id from ${logDrainEntries} where drain_id = d.id limit ${portion}) e
      where d.deleted_at is not null limit ${portion})`,
  )
  const before = new Date(now().getTime() - HOUR_MS).toISOString()
  await db.execute(sql`delete from ${logDrains} d where deleted_at < ${before}
    and not exists (select from ${logDrainEntries} e where e.drain_id = d.id)`)
}

import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { claimHourlyRun } from '../../model/hourly.ts'
import { branches, projects, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { firstIdOf } from '../../platform/db/id.ts'
import type { Runner } from './delivery-store.ts'
import { endSenders } from './wake-senders.ts'

export const DAY_MS = 86_400_000
/** How long deliveries are shown and may be retried. */
export const RETENTION_MS = 14 * DAY_MS

const CHUNK = 5_000
const CHUNKS_MAX = 100
/** Fewer, as each takes its deliveries along. */
const ENDPOINTS_CHUNK = 100

/** Deletes what no read shows any more. Events stay longer, as a delivery that is retried on its last day needs its event. */
export async function purgeExpired({ db, now, log }: SystemCtx): Promise<void> {
  const before = (days: number) => firstIdOf(now().getTime() - days * DAY_MS)
  const deliveries = await inChunks(
    db,
    (count) => sql`delete from ${webhookDeliveries} where id in (
      select id from ${webhookDeliveries} where id < ${before(14)} order by id limit ${count}) returning status`,
  )
  const events = await inChunks(
    db,
    (count) => sql`delete from ${webhookEvents} where id in (
      select id from ${webhookEvents} where id < ${before(30)} order by id limit ${count}) returning 'event' as status`,
  )
  if (deliveries.gone + events.gone === 0) return
  log.info('webhooks_purged', { deliveries: deliveries.gone, events: events.gone })
  // Only a receiver that gave no answer for 14 days comes to this.
  if (deliveries.pending > 0) log.error('webhooks_expired_unsent', { deliveries: deliveries.pending })
}

/** What was told last may still be on its way after the branch is gone: the schedule of attempts takes less. */
const BRANCH_KEPT_MS = DAY_MS

/** Once an hour: the endpoints of projects that were removed, and of the `notify_url` of branches, with what was sent to them. */
export async function purgeEndpoints(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'webhook_endpoints'))) return
  const ago = (ms: number) => new Date(ctx.now().getTime() - ms).toISOString()
  await remove(ctx, sql`join ${projects} p on p.ref = e.project_ref where p.removed_at < ${ago(RETENTION_MS)}`)
  const ofBranches = sql`join ${branches} b on b.id = e.branch_id where e.branch_id is not null`
  await remove(ctx, sql`${ofBranches} and b.removed_at < ${ago(BRANCH_KEPT_MS)}`)
}

async function remove(ctx: SystemCtx, gone: SQL): Promise<void> {
  for (let chunk = 0; chunk < CHUNKS_MAX; chunk++) {
    const removed = await rowsOf<{ id: string }>(
      ctx.db,
      sql`delete from ${webhookEndpoints} where id in (
        select e.id from ${webhookEndpoints} e ${gone} limit ${ENDPOINTS_CHUNK}) returning id`,
    )
    await endSenders(
      ctx,
      removed.map(({ id }) => id),
    )
    if (removed.length < ENDPOINTS_CHUNK) return
  }
}

async function inChunks(db: Runner, remove: (count: number) => SQL): Promise<{ gone: number; pending: number }> {
  const total = { gone: 0, pending: 0 }
  for (let chunk = 0; chunk < CHUNKS_MAX; chunk++) {
    const { rows } = await db.execute(sql`
      with gone as (${remove(CHUNK)})
      select count(*)::int as gone, count(*) filter (where status = 'pending')::int as pending from gone`)
    const [counted] = rows as [{ gone: number; pending: number }]
    total.gone += counted.gone
    total.pending += counted.pending
    if (counted.gone < CHUNK) break
  }
  return total
}

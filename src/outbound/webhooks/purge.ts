import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { claimHourlyRun } from '../../model/hourly.ts'
import { branches, projects, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { firstIdOf } from '../../platform/db/id.ts'
import type { Runner } from './delivery-store.ts'
import { endSenders } from './wake-senders.ts'

export const DAY_MS = 86_400_000
/** The time for which deliveries are listed and can be retried. */
export const RETENTION_MS = 14 * DAY_MS

const CHUNK = 5_000
const CHUNKS_MAX = 100
/** Smaller, because deleting an endpoint also deletes its deliveries. */
const ENDPOINTS_CHUNK = 100

/** Deletes expired deliveries and events. Events are kept longer, because a delivery retried on its last day needs its event. */
export async function purgeExpired({ db, now, log }: SystemCtx): Promise<void> {
  const before = (days: number) => firstIdOf(now().getTime() - days * DAY_MS)
  const deliveries = await deleteInChunks(
    db,
    (count) => sql`delete from ${webhookDeliveries} where id in (
      select id from ${webhookDeliveries} where id < ${before(14)} order by id limit ${count}) returning status`,
  )
  const events = await deleteInChunks(
    db,
    (count) => sql`delete from ${webhookEvents} where id in (
      select id from ${webhookEvents} where id < ${before(30)} order by id limit ${count}) returning 'event' as status`,
  )
  if (deliveries.deleted + events.deleted === 0) return
  log.info('webhooks_purged', { deliveries: deliveries.deleted, events: events.deleted })
  // Happens only if a receiver did not respond for 14 days.
  if (deliveries.pending > 0) log.error('webhooks_expired_unsent', { deliveries: deliveries.pending })
}

/** Longer than the retry schedule, so that the last events of a removed branch are still delivered. */
const BRANCH_KEPT_MS = DAY_MS

/** Deletes the endpoints of removed projects and of the `notify_url` of removed branches, with their deliveries. Runs once an hour. */
export async function purgeEndpoints(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'webhook_endpoints'))) return
  const ago = (ms: number) => new Date(ctx.now().getTime() - ms).toISOString()
  await deleteEndpointsWhere(
    ctx,
    sql`join ${projects} p on p.ref = e.project_ref where p.removed_at < ${ago(RETENTION_MS)}`,
  )
  const ofBranches = sql`join ${branches} b on b.id = e.branch_id where e.branch_id is not null`
  await deleteEndpointsWhere(ctx, sql`${ofBranches} and b.removed_at < ${ago(BRANCH_KEPT_MS)}`)
}

async function deleteEndpointsWhere(ctx: SystemCtx, condition: SQL): Promise<void> {
  for (let chunk = 0; chunk < CHUNKS_MAX; chunk++) {
    const removed = await rowsOf<{ id: string }>(
      ctx.db,
      sql`delete from ${webhookEndpoints} where id in (
        select e.id from ${webhookEndpoints} e ${condition} limit ${ENDPOINTS_CHUNK}) returning id`,
    )
    await endSenders(
      ctx,
      removed.map(({ id }) => id),
    )
    if (removed.length < ENDPOINTS_CHUNK) return
  }
}

async function deleteInChunks(
  db: Runner,
  deleteChunk: (count: number) => SQL,
): Promise<{ deleted: number; pending: number }> {
  const total = { deleted: 0, pending: 0 }
  for (let chunk = 0; chunk < CHUNKS_MAX; chunk++) {
    const { rows } = await db.execute(sql`
      with deleted as (${deleteChunk(CHUNK)})
      select count(*)::int as deleted, count(*) filter (where status = 'pending')::int as pending from deleted`)
    const [counted] = rows as [{ deleted: number; pending: number }]
    total.deleted += counted.deleted
    total.pending += counted.pending
    if (counted.deleted < CHUNK) break
  }
  return total
}

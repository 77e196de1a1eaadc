import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { claimHourlyRun } from '../../model/hourly.ts'
import { branches, projects, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { firstIdOf } from '../../platform/db/id.ts'
import { purgeRows } from '../../platform/db/purge.ts'
import { endSenders } from './wake-senders.ts'

export const DAY_MS = 86_400_000
/** The time for which deliveries are listed and can be retried. */
export const RETENTION_MS = 14 * DAY_MS

const CHUNKS_MAX = 100
/** Smaller, because deleting an endpoint also deletes its deliveries. */
const ENDPOINTS_CHUNK = 100

/** Deletes expired deliveries and events. Events are kept longer, because a delivery retried on its last day needs its event. */
export async function purgeExpired({ db, now, log }: SystemCtx): Promise<void> {
  const isBefore = (days: number) => sql`id < ${firstIdOf(now().getTime() - days * DAY_MS)}`
  // Happens only if a receiver did not respond for 14 days.
  const unsent = await purgeRows(db, webhookDeliveries, sql`${isBefore(14)} and status = 'pending'`, sql`id`)
  const deliveries = unsent + (await purgeRows(db, webhookDeliveries, isBefore(14), sql`id`))
  const events = await purgeRows(db, webhookEvents, isBefore(30), sql`id`)
  if (deliveries + events > 0) log.info('webhooks_purged', { deliveries, events })
  if (unsent > 0) log.error('webhooks_expired_unsent', { deliveries: unsent })
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

import type { SystemCtx } from '../../ctx.ts'
import { send } from '../../platform/queue/send.ts'
import { overdueEndpoints, readBacklog } from './delivery-store.ts'
import { type Wake, wakeSwept } from './wake-senders.ts'

/** Messages may still be in transit before this time, and a sweep would only send duplicates. */
const GRACE_MS = 5_000
const PAGE = 1_000
const LATE_MS = 60_000
const FIRST_ID = '00000000-0000-0000-0000-000000000000'

/** Wakes the senders of all endpoints with overdue deliveries, in case messages, alarms or senders were lost. */
export async function wakeOverdue(ctx: SystemCtx): Promise<number> {
  const { db, databaseNow: now } = ctx
  let overdue = 0
  let page: string[] = []
  do {
    page = await overdueEndpoints(db, now, { graceMs: GRACE_MS, after: page.at(-1) ?? FIRST_ID, count: PAGE })
    overdue += page.length
    const wakes = page.map((endpointId): Wake => ({ type: 'webhook', endpointId, swept: true }))
    // If the queue fails, the senders are called directly.
    const unsent = await send(ctx, wakes)
    await wakeSwept(
      ctx,
      unsent.map(({ endpointId }) => endpointId),
    )
  } while (page.length === PAGE)
  if (overdue > 0) await report(ctx, overdue)
  return overdue
}

async function report({ db, databaseNow: now, log }: SystemCtx, endpoints: number): Promise<void> {
  const { due, oldestDueMs } = await readBacklog(db, now)
  const fields = { due, oldest_pending_age_s: Math.round(oldestDueMs / 1000), endpoints_overdue: endpoints }
  if (oldestDueMs > LATE_MS) log.error('webhooks_late', fields)
  else log.info('webhook_sweep', fields)
}

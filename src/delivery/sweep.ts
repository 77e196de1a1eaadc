import type { SystemCtx } from '../env.ts'
import { send } from '../queue/send.ts'
import { backlog, overdueEndpoints } from './store.ts'

/** A message may still be on its way; sooner than that a sweep would only send doubles. */
const GRACE_MS = 5_000
const PAGE = 1_000
const LATE_MS = 60_000
const FIRST_ID = '00000000-0000-0000-0000-000000000000'

/** Wakes the sender of every endpoint that has overdue deliveries: whatever became of its messages, alarms and senders. */
export async function wakeOverdue(ctx: SystemCtx): Promise<number> {
  const { db, databaseNow: now } = ctx
  let rescued = 0
  let page: string[] = []
  do {
    page = await overdueEndpoints(db, now, { graceMs: GRACE_MS, after: page.at(-1) ?? FIRST_ID, count: PAGE })
    rescued += page.length
    await send(
      ctx,
      page.map((endpointId) => ({ type: 'webhook', endpointId })),
    )
  } while (page.length === PAGE)
  if (rescued > 0) await report(ctx, rescued)
  return rescued
}

async function report({ db, databaseNow: now, log }: SystemCtx, rescued: number): Promise<void> {
  const { due, oldestDueMs } = await backlog(db, now)
  const fields = { due, oldest_pending_age_s: Math.round(oldestDueMs / 1000), sweeper_rescued: rescued }
  if (oldestDueMs > LATE_MS) log.error('webhooks_late', fields)
  else log.info('webhook_sweep', fields)
}

import { callerOf } from '../../actor.ts'
import type { SystemCtx } from '../../ctx.ts'
import { withConnectionSlot } from '../../engine/connection-limit.ts'
import { REQUEST_LOCK_MS } from '../../platform/db/client.ts'
import { ApiError } from '../../platform/http/error.ts'

const SESSIONS_MAX = 8
/** More than the requests that a rate limit lets through at once. */
const WAITING_MAX = 512
/** Longer than most transactions. A request that is canceled keeps its session until then. */
const RUN_MS = 60_000

/**
 * Runs a transaction of a request. Each holds a session of the control database, also while it waits for a lock that its user may hold
 * with another request. So each user has only a few sessions for a purpose, and further requests wait without one.
 */
export function withUserSession<Value>(
  { actor }: SystemCtx,
  purpose: 'changes' | 'passwords',
  work: () => Promise<Value>,
): Promise<Value> {
  const userId = callerOf(actor)?.userId
  if (userId === undefined) return work()
  return withConnectionSlot(
    `${purpose} of ${userId}`,
    {
      ...{ waitMs: REQUEST_LOCK_MS, runMs: RUN_MS, max: SESSIONS_MAX, waitingMax: WAITING_MAX },
      refusal: () => new ApiError('service_unavailable.control_database'),
    },
    work,
  )
}

import { AsyncLocalStorage } from 'node:async_hooks'
import { withConnectionSlot } from '../../engine/connection-limit.ts'
import { REQUEST_LOCK_MS } from '../../platform/db/client.ts'
import { ApiError } from '../../platform/http/error.ts'

const SESSIONS_MAX = 8
/** More than the requests that a rate limit lets through at once. */
const WAITING_MAX = 512
/** Longer than most transactions. A request that is canceled keeps its session until then. */
const RUN_MS = 60_000

/** Set within a transaction: one that it contains must not wait for a place, because it would wait for the outer ones. */
const isWithin = new AsyncLocalStorage<true>()

/**
 * Runs a transaction of a request. Each holds a session of the control database, also while it waits for a lock that its user may hold
 * with another request. So a user has only a few at once, and further requests wait without a session. Transactions
 * without a user have no bound.
 */
export function withUserSession<Value>(userId: string | undefined, work: () => Promise<Value>): Promise<Value> {
  if (userId === undefined || isWithin.getStore()) return work()
  return withConnectionSlot(
    `changes of ${userId}`,
    {
      ...{ waitMs: REQUEST_LOCK_MS, runMs: RUN_MS, max: SESSIONS_MAX, waitingMax: WAITING_MAX },
      refusal: () => new ApiError('service_unavailable.control_database'),
    },
    () => isWithin.run(true, work),
  )
}

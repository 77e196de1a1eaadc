import type { SystemCtx } from '../../ctx.ts'
import type { Outcome } from './attempt.ts'
import type { ClaimedDelivery, Settlement } from './delivery-store.ts'
import { DAY_MS } from './purge.ts'
import { ATTEMPTS_MAX, delayAfter } from './retry-schedule.ts'

export type Result = Outcome | { kind: 'skipped'; errorCode: string }

/** The delay after a local problem before the same attempt is repeated. */
const LOCAL_DELAY_MS = 15_000

const hasFailed = (result: Result) => result.kind === 'failed' || (result.kind === 'answered' && !result.succeeded)

/** Only events and replays are retried; attempts requested by a user are made once. */
const hasSchedule = ({ trigger }: ClaimedDelivery) => trigger === 'event' || trigger === 'replay'

/** Returns the changes to the row of a delivery after a result. */
export function settlementOf(delivery: ClaimedDelivery, result: Result, sentAt: number, mayRetry: boolean): Settlement {
  const { id, claim, attempt } = delivery
  if (result.kind === 'skipped') return { id, claim, status: 'skipped', errorCode: result.errorCode }
  if (result.kind === 'postponed') return { id, claim, status: 'pending', delayMs: LOCAL_DELAY_MS }
  const attempted = { id, claim, attemptedAt: sentAt, ...result.answer }
  if (result.kind === 'answered' && result.succeeded) return { ...attempted, status: 'success' }
  const { errorCode, errorMessage } = result.kind === 'failed' ? result : errorOf(result.answer.code)
  const willRetry = mayRetry && hasSchedule(delivery)
  const retryAfter = result.answer?.headers['retry-after']
  const delayMs = willRetry ? delayAfter({ attempt, retryAfter, now: sentAt, random: Math.random() }) : undefined
  return { ...attempted, status: 'failure', errorCode, errorMessage, ...(delayMs !== undefined && { delayMs }) }
}

const errorOf = (code: number) => ({
  errorCode: 'bad_status',
  errorMessage: `the receiver answered ${code}: it must answer 2xx`,
})

/**
 * Returns the reason to disable the endpoint after this result, if any. A long failure only counts after the last retry, because
 * the first attempt in days may fail by chance.
 */
export function disablingOf(
  { config, requestId }: SystemCtx,
  delivery: ClaimedDelivery,
  result: Result,
  sentAt: number,
) {
  const { url, failingSince, attempt } = delivery
  // The status suffices, even if reading the body fails.
  if ('answer' in result && result.answer?.code === 410) {
    return { reason: 'the receiver answered 410 Gone', url, failingForMs: 0, requestId }
  }
  const failingForMs = config.WEBHOOK_DISABLE_AFTER_DAYS * DAY_MS
  const hasFailedTooLong = failingForMs > 0 && failingSince !== null && sentAt - failingSince >= failingForMs
  const isLast = hasSchedule(delivery) && attempt >= ATTEMPTS_MAX
  return hasFailedTooLong && isLast && hasFailed(result)
    ? { reason: 'the receiver failed for too long', url, failingForMs, requestId }
    : undefined
}

export const statusOf = (result: Result): 'success' | 'failure' | 'skipped' | 'postponed' =>
  result.kind === 'skipped' || result.kind === 'postponed' ? result.kind : hasFailed(result) ? 'failure' : 'success'

/** The name under which the log counts a result. */
export function nameOf(result: Result): string {
  if (result.kind === 'failed') return result.errorCode
  if (result.kind !== 'answered') return result.kind
  return result.succeeded ? 'success' : 'bad_status'
}

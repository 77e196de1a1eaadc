import type { SystemCtx } from '../../ctx.ts'
import type { Outcome } from './attempt.ts'
import type { Claimed, Settlement } from './delivery-store.ts'
import { DAY_MS } from './purge.ts'
import { ATTEMPTS_MAX, delayAfter } from './retry-schedule.ts'

export type Result = Outcome | { kind: 'skipped'; errorCode: string }

/** Our own fault: the same attempt may be made again so much later. */
const POSTPONED_MS = 15_000

const hasFailed = (result: Result) => result.kind === 'failed' || (result.kind === 'answered' && !result.succeeded)

/** What a user asks for is tried once. */
const hasSchedule = ({ trigger }: Claimed) => trigger === 'event' || trigger === 'replay'

/** What the row of a delivery says after this result. */
export function settlementOf(delivery: Claimed, result: Result, sentAt: number, mayRepeat: boolean): Settlement {
  const { id, claim, attempt } = delivery
  if (result.kind === 'skipped') return { id, claim, status: 'skipped', errorCode: result.errorCode }
  if (result.kind === 'postponed') return { id, claim, status: 'pending', delayMs: POSTPONED_MS }
  const made = { id, claim, attemptedAt: sentAt, ...result.answer }
  if (result.kind === 'answered' && result.succeeded) return { ...made, status: 'success' }
  const { errorCode, errorMessage } = result.kind === 'failed' ? result : errorOf(result.answer.code)
  const repeats = mayRepeat && hasSchedule(delivery)
  const retryAfter = result.answer?.headers['retry-after']
  const delayMs = repeats ? delayAfter({ attempt, retryAfter, now: sentAt, random: Math.random() }) : undefined
  return { ...made, status: 'failure', errorCode, errorMessage, ...(delayMs !== undefined && { delayMs }) }
}

const errorOf = (code: number) => ({ errorCode: 'bad_status', errorMessage: `the receiver answered ${code}, not 2xx` })

/**
 * Whether the endpoint is to be disabled after this result, and why. For long failure only where a schedule ends with it: the first
 * attempt in days may fail by chance.
 */
export function disablingOf({ config, requestId }: SystemCtx, delivery: Claimed, result: Result, sentAt: number) {
  const { url, failingSince, attempt } = delivery
  // The status says it all, whatever becomes of the body.
  if ('answer' in result && result.answer?.code === 410) {
    return { reason: 'the receiver answered 410 Gone', url, failingForMs: 0, requestId }
  }
  const failingForMs = config.WEBHOOK_DISABLE_AFTER_DAYS * DAY_MS
  const tooLong = failingForMs > 0 && failingSince !== null && sentAt - failingSince >= failingForMs
  const isLast = hasSchedule(delivery) && attempt >= ATTEMPTS_MAX
  return tooLong && isLast && hasFailed(result)
    ? { reason: 'it failed for too long', url, failingForMs, requestId }
    : undefined
}

export const statusOf = (result: Result): 'success' | 'failure' | 'skipped' | 'postponed' =>
  result.kind === 'skipped' || result.kind === 'postponed' ? result.kind : hasFailed(result) ? 'failure' : 'success'

/** The result as the log counts it. */
export function nameOf(result: Result): string {
  if (result.kind === 'failed') return result.errorCode
  if (result.kind !== 'answered') return result.kind
  return result.succeeded ? 'success' : 'bad_status'
}

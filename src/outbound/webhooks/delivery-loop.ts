import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import { rejectOnAbort } from '../../platform/timeout.ts'
import { attempt, hasEvent, type Ports } from './attempt.ts'
import { disablingOf, nameOf, type Result, settlementOf, statusOf } from './attempt-outcome.ts'
import { createBreaker } from './breaker.ts'
import { type Admission, waitFor } from './delivery-permits.ts'
import { newDemand, runRound } from './delivery-round.ts'
import {
  type ClaimedDelivery,
  claimDue,
  type Disabling,
  disable,
  nextDueMs,
  type Settlement,
  settle,
} from './delivery-store.ts'

/** Claims after which a delivery whose senders crashed counts as a failed attempt. */
const CLAIMS_MAX = 20
const STATEMENT_MS = 5_000
/** The pause after a database failure, doubled each time. */
const DATABASE_PAUSE_MS = 5_000
const DATABASE_PAUSE_MS_MAX = 60_000
/** Pauses between attempts to record results. A delivery without a recorded result is sent again after its lease. */
const RECORD_PAUSES_MS = [500, 1_000, 2_000, 4_000]
const RECORD_MS_MAX = 20_000
const WAIT_MS_MIN = 100
const REPORT_MS = 1_000

interface Wake {
  /** Also plan the wake for the next due delivery. */
  plan?: boolean
  /** The sweep found an overdue delivery, so an earlier wake was lost. */
  swept?: boolean
  /** A user requested an attempt: an open breaker lets one through. */
  asked?: boolean
}

export interface Sender {
  /** Delivers until nothing is due. Never rejects. */
  wake(options?: Wake): Promise<void>
}

interface Options {
  endpointId: string
  ports: Ports
  /** The admission shared by all senders of the isolate. */
  admission: Admission
  /** Schedules a wake; an earlier scheduled wake must stay. */
  wakeAt(at: number): Promise<void>
  /** Called with the status of each attempt. */
  onResult?(status: ReturnType<typeof statusOf>): void
}

interface Totals {
  claimed: number
  /** Wakes while the sender was running or nothing was due. */
  suppressed: number
  isRescue: boolean
  firstAttemptMs: number
  /** The reasons why attempts could not be made. */
  postponed: Set<string>
  outcomes: Record<string, number>
}
const newTotals = (): Totals => ({
  claimed: 0,
  suppressed: 0,
  isRescue: false,
  firstAttemptMs: 0,
  postponed: new Set(),
  outcomes: {},
})

/**
 * Delivers what is due for one endpoint. Its state may be lost at any moment: the rows define the work, leases exclude a second
 * sender, and deliveries that were claimed but not recorded are claimed again after their lease.
 */
export function createSender(
  ctx: SystemCtx,
  { endpointId, ports, admission, wakeAt, onResult = () => {} }: Options,
): Sender {
  const { db, databaseNow: now, log } = ctx
  const clock = () => ctx.now().getTime()
  const breaker = createBreaker()
  const demand = newDemand()
  let running: Promise<void> | undefined
  /** Initially true: only the database has the plans of an earlier sender. */
  let mustPlan = true
  let pauseMs = DATABASE_PAUSE_MS
  let totals = newTotals()
  let reportedAt = 0
  let reporting = false
  let alarms = Promise.resolve()

  function wake({ plan = false, swept = false, asked = false }: Wake = {}): Promise<void> {
    demand.open = true
    if (asked) breaker.probe(clock())
    mustPlan ||= plan
    if (running && !swept) totals.suppressed += 1
    if (!running) totals.isRescue = swept && !breaker.isProbing(clock())
    if (running) {
      demand.notify()
      // The alarm has fired and the current round may take long, so the next alarm is set concurrently.
      if (plan) void planConcurrently().catch(() => {})
    }
    running ??= run()
    return running
  }

  /** Schedules the next future delivery. Deliveries that are due already wait for a slot and are planned at the end of the round. */
  async function planConcurrently(): Promise<void> {
    const dueMs = await runStatement(() => nextDueMs(db, now, endpointId))
    if (dueMs !== undefined && dueMs > 0) planWake(clock() + dueMs)
  }

  async function run(): Promise<void> {
    try {
      do {
        const { timeout } = ports
        const isLimitReached = await runRound({
          clock,
          breaker,
          demand,
          admission,
          claim,
          send,
          settle: record,
          timeout,
        })
        await alarms
        await planNext()
        // The platform limits the work per event; the alarm starts a new event.
        if (isLimitReached) await wakeAt(clock())
        if (isLimitReached) break
      } while (demand.open && !breaker.isOpen(clock()))
      pauseMs = DATABASE_PAUSE_MS
    } catch (error) {
      // The database failed: the rows stay pending, and querying it without a pause would keep it overloaded.
      log.error('webhook_sender_failed', { endpoint: endpointId, error: describeError(error) })
      mustPlan = true
      alarms = Promise.resolve()
      await wakeAt(clock() + pauseMs).catch(() => {})
      pauseMs = Math.min(pauseMs * 2, DATABASE_PAUSE_MS_MAX)
    }
    report()
    running = undefined
  }

  async function claim(count: number): Promise<ClaimedDelivery[]> {
    const token = crypto.randomUUID()
    const claimed = await runStatement(() => claimDue(db, now, endpointId, token, count))
    totals.claimed += claimed.length
    return claimed
  }

  async function send(delivery: ClaimedDelivery, aheadMs: number) {
    const sentAt = clock() + aheadMs
    const result = await resultOf(delivery, sentAt)
    breaker.record(result, clock())
    count(delivery, result, sentAt)
    const disabling = disablingOf(ctx, delivery, result, sentAt)
    // Done before the result is recorded, so that after a crash in between the endpoint is disabled.
    const disabled = disabling !== undefined && (await disableBecause(disabling))
    return { settlement: settlementOf(delivery, result, sentAt, !disabled), disabled }
  }

  /** Always returns a result: local errors do not count as failures of the receiver. */
  async function resultOf(delivery: ClaimedDelivery, sentAt: number): Promise<Result> {
    if (!delivery.enabled) return { kind: 'skipped', errorCode: 'endpoint_disabled' }
    if (!hasEvent(delivery)) return { kind: 'skipped', errorCode: 'event_expired' }
    if (delivery.claims > CLAIMS_MAX)
      return { kind: 'failed', errorCode: 'sender_died', errorMessage: 'the senders crashed during the attempt' }
    try {
      return await attempt(ctx, ports, delivery, sentAt)
    } catch (error) {
      const fields = { endpoint: endpointId, delivery: delivery.id, error: describeError(error) }
      log.error('webhook_attempt_impossible', fields)
      return { kind: 'postponed', reason: 'internal' }
    }
  }

  async function disableBecause(disabling: Disabling): Promise<boolean> {
    try {
      const disabled = await runStatement(() => disable(db, now, endpointId, disabling))
      if (disabled) log.info('webhook_endpoint_disabled', { endpoint: endpointId, reason: disabling.reason })
      return disabled
    } catch (error) {
      log.error('webhook_endpoint_not_disabled', { endpoint: endpointId, error: describeError(error) })
      return false
    }
  }

  async function record(batch: readonly Settlement[]): Promise<void> {
    const { recorded, nextMs } = await retryRecording(() => settle(db, now, endpointId, batch))
    // Some were recorded by an earlier statement whose response was lost: only the database has its plans.
    if (recorded < batch.length) mustPlan = true
    if (nextMs !== null) planWake(clock() + nextMs)
  }

  /** Schedules alarms in the background, because a result's lease could expire while it waits. Serialized, so that the earliest stays. */
  function planWake(at: number): void {
    alarms = alarms.then(() => wakeAt(at))
    alarms.catch(() => {})
  }

  async function planNext(): Promise<void> {
    const open = breaker.openUntil(clock())
    if (open !== undefined) {
      mustPlan = true
      return wakeAt(open)
    }
    if (!mustPlan) return
    // Cleared before the query, so that an alarm during the query requests another plan. A failure sets it again.
    mustPlan = false
    const dueMs = await runStatement(() => nextDueMs(db, now, endpointId))
    if (dueMs !== undefined) await wakeAt(clock() + Math.max(dueMs, WAIT_MS_MIN))
  }

  async function retryRecording<T>(send: () => Promise<T>): Promise<T> {
    const startedAt = clock()
    for (const ms of RECORD_PAUSES_MS) {
      try {
        return await runStatement(send)
      } catch (error) {
        if (clock() - startedAt > RECORD_MS_MAX) throw error
        log.info('webhook_results_wait', { endpoint: endpointId, ms })
        await waitFor(ports.timeout(ms))
      }
    }
    return runStatement(send)
  }

  /** Repeats a statement once: all statements here are idempotent. */
  async function runStatement<T>(send: () => Promise<T>): Promise<T> {
    try {
      return await withTimeout(send())
    } catch {
      return withTimeout(send())
    }
  }

  async function withTimeout<T>(work: Promise<T>): Promise<T> {
    const { signal, clear } = ports.timeout(STATEMENT_MS)
    return rejectOnAbort(signal, work, 'the database did not answer in time').finally(clear)
  }

  function count({ claims, publishedAt, dueAt, trigger }: ClaimedDelivery, result: Result, sentAt: number) {
    const name = nameOf(result)
    onResult(statusOf(result))
    totals.outcomes[name] = (totals.outcomes[name] ?? 0) + 1
    if (result.kind === 'postponed') totals.postponed.add(result.reason)
    // A first attempt is the only one that is due when its event is published.
    if (trigger === 'event' && dueAt === publishedAt && claims === 1)
      totals.firstAttemptMs = Math.max(totals.firstAttemptMs, sentAt - publishedAt)
  }

  /** Logs at most one line per second: under load, a line costs as much as a delivery. */
  function report() {
    if (reporting) return
    const waitMs = reportedAt + REPORT_MS - clock()
    if (waitMs <= 0) {
      writeReport()
      return
    }
    reporting = true
    ports.timeout(waitMs).signal.addEventListener('abort', writeReport, { once: true })
  }

  function writeReport() {
    reporting = false
    reportedAt = clock()
    const { claimed, suppressed, isRescue, firstAttemptMs, postponed, outcomes } = totals
    totals = newTotals()
    log.info('webhook_attempts', {
      endpoint: endpointId,
      ...outcomes,
      ...(firstAttemptMs > 0 && { first_attempt_ms: Math.round(firstAttemptMs) }),
      duplicates_suppressed: suppressed + Number(claimed === 0 && !isRescue),
      ...(isRescue && { sweeper_rescued: claimed }),
      ...(breaker.isOpen(clock()) && { breaker: 'open' }),
    })
    for (const reason of postponed) log.error('webhook_postponed', { endpoint: endpointId, reason })
  }

  return { wake }
}

import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import { attempt, hasEvent, type Ports } from './attempt.ts'
import { disablingOf, nameOf, type Result, settlementOf, statusOf } from './attempt-outcome.ts'
import { createBreaker } from './breaker.ts'
import { type Admission, over } from './delivery-permits.ts'
import { newDemand, runRound } from './delivery-round.ts'
import {
  type Claimed,
  claimDue,
  type Disabling,
  disable,
  nextDueMs,
  type Settlement,
  settle,
} from './delivery-store.ts'

/** A delivery whose senders died so often is a failed attempt. */
const CLAIMS_MAX = 20
const STATEMENT_MS = 5_000
/** The pause after the database failed; doubled each time. */
const REST_MS = 5_000
const REST_MS_MAX = 60_000
/** What was sent and cannot be recorded is sent again once its lease has ended: a moment without the database must not do that. */
const RECORD_PAUSES_MS = [500, 1_000, 2_000, 4_000]
const RECORD_MS_MAX = 20_000
const WAIT_MS_MIN = 100
const REPORT_MS = 1_000

interface Wake {
  /** Also find out when the next delivery is due. */
  plan?: boolean
  /** The sweeper found something overdue: whatever should have woken the sender did not. */
  swept?: boolean
  /** A user waits for an attempt: a breaker that is open lets one through. */
  asked?: boolean
}

export interface Sender {
  /** Something may be due: works until nothing is. Never rejects. */
  wake(options?: Wake): Promise<void>
}

interface Options {
  endpointId: string
  ports: Ports
  /** Of all senders of the isolate. */
  admission: Admission
  /** Asks for a wake at this time; an earlier one that stands must stand. */
  wakeAt(at: number): Promise<void>
  /** Told what became of each attempt. */
  onResult?(status: ReturnType<typeof statusOf>): void
}

interface Tally {
  claimed: number
  /** Wakes that found the work under way or nothing due. */
  suppressed: number
  rescuing: boolean
  firstAttemptMs: number
  /** Why attempts could not be made. */
  postponed: Set<string>
  outcomes: Record<string, number>
}
const newTally = (): Tally => ({
  claimed: 0,
  suppressed: 0,
  rescuing: false,
  firstAttemptMs: 0,
  postponed: new Set(),
  outcomes: {},
})

/**
 * Delivers what is due for one endpoint. Everything it knows may be lost at any moment: the rows say what is to be done, a lease
 * keeps a second sender off, and what this one claimed and did not record is claimed again when the lease has ended.
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
  /** What an earlier sender planned is known to the database alone. */
  let mustPlan = true
  let restMs = REST_MS
  let tally = newTally()
  let reportedAt = 0
  let reporting = false
  let alarms = Promise.resolve()

  function wake({ plan = false, swept = false, asked = false }: Wake = {}): Promise<void> {
    demand.open = true
    if (asked) breaker.probe(clock())
    mustPlan ||= plan
    if (running && !swept) tally.suppressed += 1
    if (!running) tally.rescuing = swept && !breaker.isProbing(clock())
    if (running) {
      demand.notify()
      // The alarm that came is spent, and what is under way may take long: the next one is set beside it.
      if (plan) void planBeside().catch(() => {})
    }
    running ??= run()
    return running
  }

  /** What is due by now waits for no alarm but for a slot, and the end of the round plans for it. */
  async function planBeside(): Promise<void> {
    const dueMs = await statement(() => nextDueMs(db, now, endpointId))
    if (dueMs !== undefined && dueMs > 0) planWake(clock() + dueMs)
  }

  async function run(): Promise<void> {
    try {
      do {
        const { timeout } = ports
        const full = await runRound({ clock, breaker, demand, admission, claim, send, settle: record, timeout })
        await alarms
        await planNext()
        // The platform bounds what one event may cost: the alarm is another one.
        if (full) await wakeAt(clock())
        if (full) break
      } while (demand.open && !breaker.isOpen(clock()))
      restMs = REST_MS
    } catch (error) {
      // The database is away: its rows wait, and asking it without a pause would keep it away.
      log.error('webhook_sender_failed', { endpoint: endpointId, error: describeError(error) })
      mustPlan = true
      alarms = Promise.resolve()
      await wakeAt(clock() + restMs).catch(() => {})
      restMs = Math.min(restMs * 2, REST_MS_MAX)
    }
    report()
    running = undefined
  }

  async function claim(count: number): Promise<Claimed[]> {
    const token = crypto.randomUUID()
    const claimed = await statement(() => claimDue(db, now, endpointId, token, count))
    tally.claimed += claimed.length
    return claimed
  }

  async function send(delivery: Claimed, aheadMs: number) {
    const sentAt = clock() + aheadMs
    const result = await resultOf(delivery, sentAt)
    breaker.record(result, clock())
    count(delivery, result, sentAt)
    const disabling = disablingOf(ctx, delivery, result, sentAt)
    // Before the result is recorded: a sender that dies in between then finds the endpoint disabled.
    const disabled = disabling !== undefined && (await disableBecause(disabling))
    return { settlement: settlementOf(delivery, result, sentAt, !disabled), disabled }
  }

  /** Ends in a result whatever happens: what goes wrong on our side is not the receiver's fault. */
  async function resultOf(delivery: Claimed, sentAt: number): Promise<Result> {
    if (!delivery.enabled) return { kind: 'skipped', errorCode: 'endpoint_disabled' }
    if (!hasEvent(delivery)) return { kind: 'skipped', errorCode: 'event_expired' }
    if (delivery.claims > CLAIMS_MAX)
      return { kind: 'failed', errorCode: 'sender_died', errorMessage: 'its senders died in the attempt' }
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
      const disabled = await statement(() => disable(db, now, endpointId, disabling))
      if (disabled) log.info('webhook_endpoint_disabled', { endpoint: endpointId, reason: disabling.reason })
      return disabled
    } catch (error) {
      log.error('webhook_endpoint_not_disabled', { endpoint: endpointId, error: describeError(error) })
      return false
    }
  }

  async function record(batch: readonly Settlement[]): Promise<void> {
    const { recorded, nextMs } = await patiently(() => settle(db, now, endpointId, batch))
    // Recorded before, by a statement whose answer got lost: only the database knows what it planned.
    if (recorded < batch.length) mustPlan = true
    if (nextMs !== null) planWake(clock() + nextMs)
  }

  /** No result waits for an alarm: its lease could end meanwhile. One after the other, so that the earliest stands. */
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
    // At once: an alarm that rings meanwhile asks for another plan. Who fails sets it again.
    mustPlan = false
    const dueMs = await statement(() => nextDueMs(db, now, endpointId))
    if (dueMs !== undefined) await wakeAt(clock() + Math.max(dueMs, WAIT_MS_MIN))
  }

  async function patiently<T>(send: () => Promise<T>): Promise<T> {
    const startedAt = clock()
    for (const ms of RECORD_PAUSES_MS) {
      try {
        return await statement(send)
      } catch (error) {
        if (clock() - startedAt > RECORD_MS_MAX) throw error
        log.info('webhook_results_wait', { endpoint: endpointId, ms })
        await over(ports.timeout(ms))
      }
    }
    return statement(send)
  }

  /** A statement whose answer got lost may be sent again: each of ours then does what the first one did, or nothing. */
  async function statement<T>(send: () => Promise<T>): Promise<T> {
    try {
      return await inTime(send())
    } catch {
      return inTime(send())
    }
  }

  async function inTime<T>(work: Promise<T>): Promise<T> {
    const { signal, clear } = ports.timeout(STATEMENT_MS)
    const tooLate = new Promise<never>((_, reject) => {
      const end = () => reject(new Error('the database did not answer in time'))
      signal.addEventListener('abort', end, { once: true })
    })
    try {
      return await Promise.race([work, tooLate])
    } finally {
      clear()
    }
  }

  function count({ claims, publishedAt, dueAt, trigger }: Claimed, result: Result, sentAt: number) {
    const name = nameOf(result)
    onResult(statusOf(result))
    tally.outcomes[name] = (tally.outcomes[name] ?? 0) + 1
    if (result.kind === 'postponed') tally.postponed.add(result.reason)
    // Only a first attempt is due when its event is published.
    if (trigger === 'event' && dueAt === publishedAt && claims === 1)
      tally.firstAttemptMs = Math.max(tally.firstAttemptMs, sentAt - publishedAt)
  }

  /** One line a second at most: under load each line costs as much as a delivery. */
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
    const { claimed, suppressed, rescuing, firstAttemptMs, postponed, outcomes } = tally
    tally = newTally()
    log.info('webhook_attempts', {
      endpoint: endpointId,
      ...outcomes,
      ...(firstAttemptMs > 0 && { first_attempt_ms: Math.round(firstAttemptMs) }),
      duplicates_suppressed: suppressed + Number(claimed === 0 && !rescuing),
      ...(rescuing && { sweeper_rescued: claimed }),
      ...(breaker.isOpen(clock()) && { breaker: 'open' }),
    })
    for (const reason of postponed) log.error('webhook_postponed', { endpoint: endpointId, reason })
  }

  return { wake }
}

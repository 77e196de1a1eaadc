import type { Ports } from './attempt.ts'
import type { Breaker } from './breaker.ts'
import type { Admission, Permit } from './delivery-permits.ts'
import type { ClaimedDelivery, Settlement } from './delivery-store.ts'

/** Concurrent deliveries per endpoint: more would only fill the queue of a slow receiver. */
const SLOTS = 4
/** A claimed delivery that has not started by then is released, so that a disabled endpoint gets no late ones. */
const STALE_MS = 1_000
/** The assumed duration of an attempt until the first one has ended. */
const ATTEMPT_MS = 25
/** Attempts of this duration wait for the receiver and do not count against the capacity of the isolate. */
const SLOW_MS = 2_000
/** The maximum per claim, also limited by what can start before it is stale. One statement serves many deliveries of a fast receiver. */
const CLAIM_MAX = 64
/** Results are recorded in batches of this size, or after LINGER_MS. */
const SETTLED_MIN = 16
const LINGER_MS = 50
/** The maximum number of claims per round. */
const ROUND_MAX = 1_000
/** The maximum total length of response bodies per recording statement. */
const SETTLED_LENGTH_MAX = 512 * 1024
/** The maximum number of unrecorded deliveries, which a crash would repeat. */
const UNRECORDED_MAX = 32

interface Round {
  clock(): number
  breaker: Breaker
  demand: Demand
  admission: Admission
  claim(count: number): Promise<ClaimedDelivery[]>
  /** Sends a delivery; never rejects. `aheadMs` is the offset of the database's clock from the worker's. */
  send(delivery: ClaimedDelivery, aheadMs: number): Promise<{ settlement: Settlement; disabled: boolean }>
  settle(batch: readonly Settlement[]): Promise<void>
  timeout: Ports['timeout']
}

interface AdmittedDelivery {
  delivery: ClaimedDelivery
  permit: Permit
}

interface Demand {
  /** True if more may be due: set by every wake, cleared by a claim that finds less than requested. */
  open: boolean
  attemptMs: number
  /** Notifies the current round that more may be due. */
  notify(): void
}

export const newDemand = (): Demand => ({ open: false, attemptMs: ATTEMPT_MS, notify() {} })

/**
 * Claims, sends and records concurrently, in batches, until nothing is due. Rejects if the database failed, after active work has
 * ended. Resolves to true if the limit of claims was reached.
 */
export function runRound({ clock, breaker, demand, admission, claim, send, settle, timeout }: Round): Promise<boolean> {
  const waiting: AdmittedDelivery[] = []
  const results: Settlement[] = []
  let sending = 0
  let claiming = false
  let settling = 0
  let linger: ReturnType<Ports['timeout']> | undefined
  let overdue = false
  let failure: unknown
  let claimedAt = 0
  let aheadMs = 0
  let claimedCount = 0
  let disabled = false

  return new Promise((resolve, reject) => {
    const slots = () => (breaker.isProbing(clock()) ? 1 : SLOTS)
    const mustRelease = () =>
      failure !== undefined || disabled || breaker.isOpen(clock()) || clock() - claimedAt > STALE_MS
    const maySend = () => sending < slots() && sending + results.length + settling < UNRECORDED_MAX
    const mayClaim = () =>
      failure === undefined &&
      demand.open &&
      claimedCount < ROUND_MAX &&
      !claiming &&
      maySend() &&
      !breaker.isOpen(clock())

    function pump(): void {
      while (waiting.length > 0 && mustRelease()) releaseDelivery(waiting.shift() as AdmittedDelivery)
      while (waiting.length > 0 && maySend()) void start(waiting.shift() as AdmittedDelivery)
      if (results.length > 0 && settling === 0) recordOrLinger()
      if (waiting.length === 0 && mayClaim()) void claimMore()
      if (sending > 0 || claiming || settling > 0 || results.length > 0) return
      demand.notify = () => {}
      if (failure === undefined) resolve(claimedCount >= ROUND_MAX)
      else reject(failure)
    }

    function recordOrLinger() {
      const ending = failure !== undefined || claimedCount >= ROUND_MAX
      if (ending || overdue || results.length >= SETTLED_MIN || results.some(isPending)) {
        linger?.clear()
        linger = undefined
        overdue = false
        void record(takeBatch(results))
      } else {
        linger ??= startLinger()
      }
    }

    /** Waits for further results, so that one statement records several under a steady trickle. */
    function startLinger() {
      const lingering = timeout(LINGER_MS)
      const end = () => {
        overdue = true
        pump()
      }
      lingering.signal.addEventListener('abort', end, { once: true })
      return lingering
    }

    function releaseDelivery({ delivery: { id, claim }, permit }: AdmittedDelivery) {
      permit.markEnded()
      results.push({ id, claim, status: 'pending' })
      demand.open = true
    }

    async function claimMore() {
      claiming = true
      const startable = Math.floor((SLOTS * STALE_MS) / 2 / Math.max(1, demand.attemptMs))
      const requested = slots() > 1 ? Math.max(slots() - sending, Math.min(CLAIM_MAX, startable)) : 1
      const permit = await admission.enter(requested, timeout)
      try {
        // Active work may have failed meanwhile.
        const continues = failure === undefined && !breaker.isOpen(clock())
        const claimed = continues ? await claimUpTo(slots() > 1 ? permit.count : 1) : []
        permit.setClaimed(demand.attemptMs > SLOW_MS ? 0 : claimed.length)
        claimedAt = clock()
        claimedCount += claimed.length
        aheadMs = (claimed[0]?.claimedAt ?? claimedAt) - claimedAt
        disabled = false
        waiting.push(...claimed.map((delivery) => ({ delivery, permit })))
      } catch (error) {
        permit.setClaimed(0)
        failure = error
      }
      claiming = false
      pump()
    }

    async function claimUpTo(count: number): Promise<ClaimedDelivery[]> {
      demand.open = false
      const claimed = await claim(count)
      if (claimed.length === count) demand.open = true
      return claimed
    }

    async function start({ delivery, permit }: AdmittedDelivery) {
      sending += 1
      permit.markStarted()
      const startedAt = clock()
      const sent = await send(delivery, aheadMs)
      permit.markEnded()
      demand.attemptMs += (clock() - startedAt - demand.attemptMs) / 8
      disabled ||= sent.disabled
      results.push(sent.settlement)
      sending -= 1
      pump()
    }

    async function record(batch: Settlement[]) {
      settling = batch.length
      try {
        await settle(batch)
        // A concurrent claim could not see the released deliveries.
        if (batch.some(isReleased)) demand.open = true
      } catch (error) {
        failure = error
      }
      settling = 0
      pump()
    }

    demand.notify = pump
    pump()
  })
}

const isReleased = ({ status, delayMs }: Settlement) => status === 'pending' && delayMs === undefined

const isPending = ({ status }: Settlement) => status === 'pending'

function takeBatch(results: Settlement[]): Settlement[] {
  let length = 0
  const end = results.findIndex(({ body = '' }, index) => {
    length += body.length
    return index > 0 && length > SETTLED_LENGTH_MAX
  })
  return results.splice(0, end === -1 ? results.length : end)
}

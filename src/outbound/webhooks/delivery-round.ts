import type { Ports } from './attempt.ts'
import type { Breaker } from './breaker.ts'
import type { Admission, Permit } from './delivery-permits.ts'
import type { Claimed, Settlement } from './delivery-store.ts'

/** So many deliveries of one endpoint are under way at a time: more would only fill the queue of a slow receiver. */
const SLOTS = 4
/** A claimed delivery that has not been started by then is given back, so that a disabled endpoint gets no late ones. */
const STALE_MS = 1_000
/** What an attempt is taken to last before the first one has ended. */
const ATTEMPT_MS = 25
/** Where attempts last so long, it is the receiver that takes the time: they count for nothing among those of the isolate. */
const SLOW_MS = 2_000
/** Not more than can be started before they are stale, so that one statement serves many deliveries of a quick receiver. */
const CLAIM_MAX = 64
/** One statement records so many, or what there is when the first of them is so old. */
const SETTLED_MIN = 16
const LINGER_MS = 50
/** So many are claimed in one round. */
const ROUND_MAX = 1_000
/** What one statement records is bounded by the size of the answers too: in characters of their bodies. */
const SETTLED_LENGTH_MAX = 512 * 1024
/** So many may have been sent without being recorded: what a crash repeats at most. */
const UNRECORDED_MAX = 32

interface Round {
  clock(): number
  breaker: Breaker
  demand: Demand
  admission: Admission
  claim(count: number): Promise<Claimed[]>
  /** Never rejects. `aheadMs`: how far the database's clock is ahead of the worker's. */
  send(delivery: Claimed, aheadMs: number): Promise<{ settlement: Settlement; disabled: boolean }>
  settle(batch: readonly Settlement[]): Promise<void>
  timeout: Ports['timeout']
}

interface Admitted {
  delivery: Claimed
  permit: Permit
}

interface Demand {
  /** Whether more may be due: set by every wake, cleared by a claim that finds less than it asked for. */
  open: boolean
  attemptMs: number
  /** Tells the round under way that more may be due. */
  notify(): void
}

export const newDemand = (): Demand => ({ open: false, attemptMs: ATTEMPT_MS, notify() {} })

/**
 * Claims, sends and records at the same time until nothing is due, each statement for as many deliveries as there are by then.
 * Rejects when the database failed, after what was under way has ended; true when it ended for having claimed enough.
 */
export function runRound({ clock, breaker, demand, admission, claim, send, settle, timeout }: Round): Promise<boolean> {
  const waiting: Admitted[] = []
  const results: Settlement[] = []
  let sending = 0
  let claiming = false
  let settling = 0
  let linger: ReturnType<Ports['timeout']> | undefined
  let overdue = false
  let failure: unknown
  let claimedAt = 0
  let aheadMs = 0
  let taken = 0
  let disabled = false

  return new Promise((resolve, reject) => {
    const slots = () => (breaker.isProbing(clock()) ? 1 : SLOTS)
    const mustGiveBack = () =>
      failure !== undefined || disabled || breaker.isOpen(clock()) || clock() - claimedAt > STALE_MS
    const maySend = () => sending < slots() && sending + results.length + settling < UNRECORDED_MAX
    const mayClaim = () =>
      failure === undefined && demand.open && taken < ROUND_MAX && !claiming && maySend() && !breaker.isOpen(clock())

    function pump(): void {
      while (waiting.length > 0 && mustGiveBack()) giveBack(waiting.shift() as Admitted)
      while (waiting.length > 0 && maySend()) void start(waiting.shift() as Admitted)
      if (results.length > 0 && settling === 0) recordOrLinger()
      if (waiting.length === 0 && mayClaim()) void claimMore()
      if (sending > 0 || claiming || settling > 0 || results.length > 0) return
      demand.notify = () => {}
      if (failure === undefined) resolve(taken >= ROUND_MAX)
      else reject(failure)
    }

    function recordOrLinger() {
      const ending = failure !== undefined || taken >= ROUND_MAX
      if (ending || overdue || results.length >= SETTLED_MIN || results.some(isPending)) {
        linger?.clear()
        linger = undefined
        overdue = false
        void record(takeBatch(results))
      } else {
        linger ??= startLinger()
      }
    }

    /** Under a steady trickle one statement then records several, and no sender has to ask for more before it ends. */
    function startLinger() {
      const lingering = timeout(LINGER_MS)
      const end = () => {
        overdue = true
        pump()
      }
      lingering.signal.addEventListener('abort', end, { once: true })
      return lingering
    }

    function giveBack({ delivery: { id, claim }, permit }: Admitted) {
      permit.left()
      results.push({ id, claim, status: 'pending' })
      demand.open = true
    }

    async function claimMore() {
      claiming = true
      const startable = Math.floor((SLOTS * STALE_MS) / 2 / Math.max(1, demand.attemptMs))
      const wanted = slots() > 1 ? Math.max(slots() - sending, Math.min(CLAIM_MAX, startable)) : 1
      const permit = await admission.enter(wanted, timeout)
      try {
        // What was under way may have failed meanwhile.
        const goesOn = failure === undefined && !breaker.isOpen(clock())
        const claimed = goesOn ? await claimUpTo(slots() > 1 ? permit.count : 1) : []
        permit.claimed(demand.attemptMs > SLOW_MS ? 0 : claimed.length)
        claimedAt = clock()
        taken += claimed.length
        aheadMs = (claimed[0]?.claimedAt ?? claimedAt) - claimedAt
        disabled = false
        waiting.push(...claimed.map((delivery) => ({ delivery, permit })))
      } catch (error) {
        permit.claimed(0)
        failure = error
      }
      claiming = false
      pump()
    }

    async function claimUpTo(count: number): Promise<Claimed[]> {
      demand.open = false
      const claimed = await claim(count)
      if (claimed.length === count) demand.open = true
      return claimed
    }

    async function start({ delivery, permit }: Admitted) {
      sending += 1
      permit.began()
      const startedAt = clock()
      const sent = await send(delivery, aheadMs)
      permit.left()
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
        // A claim beside it could not see what was given back.
        if (batch.some(isGivenBack)) demand.open = true
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

const isGivenBack = ({ status, delayMs }: Settlement) => status === 'pending' && delayMs === undefined

const isPending = ({ status }: Settlement) => status === 'pending'

function takeBatch(results: Settlement[]): Settlement[] {
  let length = 0
  const end = results.findIndex(({ body = '' }, index) => {
    length += body.length
    return index > 0 && length > SETTLED_LENGTH_MAX
  })
  return results.splice(0, end === -1 ? results.length : end)
}

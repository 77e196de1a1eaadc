import type { Ports } from './attempt.ts'

/** The maximum number of claimed or active deliveries of all senders of an isolate, except stalled ones. */
const HELD_MAX = 128
/** The number granted to a sender while others wait: with fewer per statement, the statements would dominate. */
const SHARE = 16
/** The number that a claim reserves until its result is known; most claims find less than they request. */
const RESERVED = 8
/** A sender that has started nothing for this time waits for its receiver and does not use the shared capacity. */
const IDLE_MS = 250
/** The maximum duration of a claim. */
const CLAIM_MS_MAX = 12_000
const POLL_MS_MIN = 5
const POLL_MS_MAX = 1_000
/** The polling interval grows by this for each sender ahead in the queue. */
const POLL_MS_PER_POSITION = 5
/** A waiting sender that has not polled for this time has ended or will queue again. */
const ABANDONED_MS = 5_000

export interface Admission {
  /** Waits for capacity. Never rejects; grants at least 1. */
  enter(wanted: number, timeout: Ports['timeout']): Promise<Permit>
}

export interface Permit {
  /** The number of deliveries that may be claimed. */
  count: number
  /** Records the number that were claimed. */
  setClaimed(rows: number): void
  /** Records the start of an attempt. */
  markStarted(): void
  /** Records the end of an attempt. */
  markEnded(): void
}

interface Hold {
  count: number
  until: number
  isClaim: boolean
}

/**
 * Admits the senders of an isolate in order when more is due than it can send: otherwise they would claim more than they can start
 * in time. Holders and waiters may end silently, so all state expires. Waiters poll, because a request in workerd must not await a
 * promise of another request.
 */
export function createAdmission(clock: () => number, max = HELD_MAX): Admission {
  const holds = new Set<Hold>()
  /** The time of the last poll of each waiting sender, by its ticket. */
  const queue = new Map<object, number>()

  function freeCapacity(now: number): number {
    let heldCount = 0
    for (const hold of holds) {
      // A clock that is set back must not extend a hold.
      const isOver = now >= hold.until || hold.until - now > CLAIM_MS_MAX
      if (hold.count === 0 || isOver) holds.delete(hold)
      else heldCount += hold.count
    }
    return Math.max(max, RESERVED) - heldCount
  }

  /** Returns true if there is capacity for the ticket after those ahead of it. */
  function isNext(ticket: object, now: number): boolean {
    let left = freeCapacity(now)
    for (const [other, seenAt] of queue) {
      if (other === ticket || left < RESERVED) break
      if (Math.abs(now - seenAt) > ABANDONED_MS) queue.delete(other)
      else left -= RESERVED
    }
    return left >= RESERVED
  }

  function countFor(wanted: number, now: number): number {
    const claims = Array.from(holds).filter(({ isClaim }) => isClaim).length
    const fairShare = queue.size > 0 ? SHARE : Math.max(SHARE, Math.floor(freeCapacity(now) / (claims + 1)))
    return Math.min(wanted, fairShare)
  }

  function permit(count: number): Permit {
    const hold: Hold = { count: Math.min(count, RESERVED), until: clock() + CLAIM_MS_MAX, isClaim: true }
    holds.add(hold)
    return {
      count,
      setClaimed(rows) {
        Object.assign(hold, { count: rows, until: clock() + IDLE_MS, isClaim: false })
        // The result may arrive after the hold expired.
        holds.add(hold)
      },
      markStarted() {
        hold.until = clock() + IDLE_MS
        // The hold may have expired while the sender waited for its receiver.
        holds.add(hold)
      },
      markEnded() {
        hold.count = Math.max(0, hold.count - 1)
      },
    }
  }

  return {
    async enter(wanted, timeout) {
      const ticket = {}
      for (;;) {
        const now = clock()
        queue.set(ticket, now)
        if (isNext(ticket, now)) {
          queue.delete(ticket)
          return permit(countFor(wanted, now))
        }
        const ahead = Array.from(queue.keys()).indexOf(ticket)
        await waitFor(timeout(Math.min(POLL_MS_MAX, POLL_MS_MIN + ahead * POLL_MS_PER_POSITION)))
      }
    },
  }
}

/** Resolves when the timeout ends. */
export const waitFor = ({ signal }: ReturnType<Ports['timeout']>): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

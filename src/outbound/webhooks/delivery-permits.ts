import type { Ports } from './attempt.ts'

/** So many deliveries of all the senders of an isolate are claimed or under way, but for those that hang. */
const HELD_MAX = 128
/** What a sender gets at a time while others wait: a statement for each few deliveries would take longer than they do. */
const SHARE = 16
/** As what a claim counts until it is answered; most find less than they ask for. */
const RESERVED = 8
/** A sender that has begun nothing for so long waits for its receiver, and needs none of what is short here. */
const IDLE_MS = 250
/** A claim is answered or given up by then. */
const CLAIM_MS_MAX = 12_000
const LOOK_MS_MIN = 5
const LOOK_MS_MAX = 1_000
/** Who waits looks again after so long for each one that came before him. */
const LOOK_MS_EACH = 5
/** Who has not looked for so long is gone, or will line up again. */
const GONE_MS = 5_000

export interface Admission {
  /** Waits for its turn. Rejects never; what it grants is at least 1. */
  enter(wanted: number, timeout: Ports['timeout']): Promise<Permit>
}

export interface Permit {
  /** So many may be claimed. */
  count: number
  /** So many were, and count from now on. */
  claimed(rows: number): void
  /** One of them is on its way. */
  began(): void
  /** One of them is over. */
  left(): void
}

interface Hold {
  count: number
  until: number
  isClaim: boolean
}

/**
 * Lets the senders of an isolate in one after the other when more is due than it can send: all at once they would claim more than they
 * can start in time, give it back and claim it again. Whoever holds or waits may vanish, so nothing here is for ever; and as a request
 * must not wait for what another awaits, each looks again and again.
 */
export function createAdmission(clock: () => number, max = HELD_MAX): Admission {
  const holds = new Set<Hold>()
  const line = new Map<object, { seenAt: number }>()
  /** Of those in line: how many ever came, and how many are there no more. What lies between is about how many are before who came last. */
  let came = 0
  let gone = 0

  function room(now: number): number {
    let held = 0
    for (const hold of holds) {
      // A clock that was set back must not make one last.
      const isOver = now >= hold.until || hold.until - now > CLAIM_MS_MAX
      if (hold.count === 0 || isOver) holds.delete(hold)
      else held += hold.count
    }
    return Math.max(max, RESERVED) - held
  }

  function leave(ticket: object): void {
    if (line.delete(ticket)) gone += 1
  }

  /** Whether there is room for who has the ticket now, behind those that came before him. */
  function isNext(ticket: object, now: number): boolean {
    let left = room(now)
    for (const [other, { seenAt }] of line) {
      if (other === ticket || left < RESERVED) break
      if (Math.abs(now - seenAt) > GONE_MS) leave(other)
      else left -= RESERVED
    }
    return left >= RESERVED
  }

  function countFor(wanted: number, now: number): number {
    const claims = Array.from(holds).filter(({ isClaim }) => isClaim).length
    const fair = line.size > 0 ? SHARE : Math.max(SHARE, Math.floor(room(now) / (claims + 1)))
    return Math.min(wanted, fair)
  }

  function permit(count: number): Permit {
    const hold: Hold = { count: Math.min(count, RESERVED), until: clock() + CLAIM_MS_MAX, isClaim: true }
    holds.add(hold)
    return {
      count,
      claimed(rows) {
        Object.assign(hold, { count: rows, until: clock() + IDLE_MS, isClaim: false })
        // An answer may come when its time was over.
        holds.add(hold)
      },
      began() {
        hold.until = clock() + IDLE_MS
        // Of those that wait for a receiver it may be the first in a long time.
        holds.add(hold)
      },
      left() {
        hold.count = Math.max(0, hold.count - 1)
      },
    }
  }

  return {
    async enter(wanted, timeout) {
      const ticket = {}
      let place = 0
      for (;;) {
        const now = clock()
        if (!line.has(ticket)) place = came++
        line.set(ticket, { seenAt: now })
        if (isNext(ticket, now)) {
          leave(ticket)
          return permit(countFor(wanted, now))
        }
        const before = Math.max(0, place - gone)
        await over(timeout(Math.min(LOOK_MS_MAX, LOOK_MS_MIN + before * LOOK_MS_EACH)))
      }
    },
  }
}

/** Ends with the time. */
export const over = ({ signal }: ReturnType<Ports['timeout']>): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

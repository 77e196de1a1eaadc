import type { Ports } from './attempt.ts'

/** So many deliveries of all the senders of an isolate are claimed or under way, but for those that hang. */
const HELD_MAX = 128
/** What a sender gets at a time while others wait: a statement for each few deliveries would take longer than they do. */
const SHARE = 16
/** As what a claim counts until it is answered; most find less than they ask for. */
const RESERVED = 8
/** By then a quick receiver has answered. A slow one needs none of what is short here, so it is not counted on. */
const SLOW_MS = 250
/** A claim is answered or given up by then. */
const CLAIM_MS_MAX = 10_000
const LOOK_MS_MIN = 5
const LOOK_MS_MAX = 500
/** Looks again for each place before it in the line. */
const LOOK_MS_EACH = 2
/** Who has not looked for so long is gone. */
const GONE_MS = 2_000

export interface Admission {
  /** Waits for its turn. Rejects never; what it grants is at least 1. */
  enter(wanted: number, timeout: Ports['timeout']): Promise<Permit>
}

export interface Permit {
  /** So many may be claimed. */
  count: number
  /** So many were. */
  claimed(count: number): void
  /** One of them is over. */
  left(): void
}

interface Held {
  count: number
  until: number
}

/**
 * Lets the senders of an isolate in one after the other when more is due than it can send: all at once they would claim more than they
 * can start in time, give it back and claim it again. Whoever holds or waits may vanish, so nothing here is for ever; and as a request
 * must not wait for what another awaits, each looks again and again.
 */
export function createAdmission(clock: () => number, max = HELD_MAX): Admission {
  const holds = new Set<Held>()
  const line = new Map<object, { number: number; seenAt: number }>()
  let entered = 0
  let passed = 0

  function free(now: number): number {
    let held = 0
    for (const hold of holds) {
      if (hold.count === 0 || now >= hold.until) holds.delete(hold)
      else held += hold.count
    }
    return max - held
  }

  function leave(ticket: object) {
    if (line.delete(ticket)) passed += 1
  }

  /** Whether there is room for the ticket's holder now, behind those that came before it. */
  function isNext(ticket: object, now: number): boolean {
    let room = free(now)
    for (const [other, { seenAt }] of line) {
      if (other === ticket || room < RESERVED) break
      if (now - seenAt > GONE_MS) leave(other)
      else room -= RESERVED
    }
    return room >= RESERVED
  }

  function hold(count: number, now: number): Permit {
    const held: Held = { count: Math.min(count, RESERVED), until: now + CLAIM_MS_MAX }
    holds.add(held)
    return {
      count,
      claimed(claimed) {
        held.count = claimed
        held.until = clock() + SLOW_MS
      },
      left() {
        held.count = Math.max(0, held.count - 1)
      },
    }
  }

  return {
    async enter(wanted, timeout) {
      const ticket = {}
      const place = { number: entered++, seenAt: clock() }
      line.set(ticket, place)
      for (;;) {
        place.seenAt = clock()
        if (isNext(ticket, place.seenAt)) {
          leave(ticket)
          return hold(line.size > 0 ? Math.min(wanted, SHARE) : wanted, place.seenAt)
        }
        const before = Math.max(0, place.number - passed)
        await over(timeout(Math.min(LOOK_MS_MAX, Math.max(LOOK_MS_MIN, before * LOOK_MS_EACH))))
      }
    },
  }
}

const over = ({ signal }: ReturnType<Ports['timeout']>): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

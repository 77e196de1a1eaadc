/** Budget of all requests of an isolate: half of its memory, as V8 needs the rest. */
const BUDGET_BYTES = 64 * 1024 ** 2
const POLL_MS = 20
const WAIT_MS_MAX = 30_000

/** No memory became free in time. */
export class MemoryExhausted extends Error {
  override name = 'MemoryExhausted'
}

/** Time for which memory counts as wanted after a request could not reserve it. */
const WANTED_MS = 1_000
/** Time until which memory of any owner is wanted. Requests that exceed only the budget of their owner count in `wantedUntilBy`. */
let wantedUntil = 0
const wantedUntilBy = new Map<string, number>()

/** Whether other requests wait for memory that this owner has reserved. */
export const isMemoryWanted = (owner: string): boolean =>
  Date.now() < Math.max(wantedUntil, wantedUntilBy.get(owner) ?? 0)

interface Reservation {
  owner: string
  bytes: number
  /** Expiry of the reservation, in case its request hangs or ends without a release. */
  until: number
}
const reservations = new Set<Reservation>()
/** Lifetime of a reservation without renewal: longer than any step of work with a part in memory. */
const RESERVATION_MS_MAX = 180_000

function bytesReserved(owner?: string): number {
  let bytes = 0
  for (const reservation of reservations) {
    if (reservation.until <= Date.now()) reservations.delete(reservation)
    else if (owner === undefined || reservation.owner === owner) bytes += reservation.bytes
  }
  return bytes
}

const fitsAll = (bytes: number) => bytesReserved() + bytes <= BUDGET_BYTES

/** An owner, such as a project, has at most as much as is free, so that the slow senders of a few owners leave memory to others. */
const fits = (bytes: number, owner: string) =>
  bytesReserved() === 0 || bytesReserved(owner) + bytes <= BUDGET_BYTES - bytesReserved()

export interface MemoryReservation {
  /** Extends the reservation, as the memory is still in use. */
  renew(): void
  release(): void
}

/** Waits until the budget has `bytes` free. Polls, because in workerd a request must not await a promise of another request. */
export async function reserveMemory(bytes: number, owner: string): Promise<MemoryReservation> {
  const until = Date.now() + WAIT_MS_MAX
  while (!fits(bytes, owner)) {
    const wanted = Date.now() + WANTED_MS
    if (fitsAll(bytes)) wantedUntilBy.set(owner, wanted)
    else wantedUntil = wanted
    if (Date.now() >= until)
      throw new MemoryExhausted(
        `no memory is free: ${owner} has reserved ${bytesReserved(owner)} of ${bytesReserved()} bytes`,
      )
    await scheduler.wait(POLL_MS * (0.5 + Math.random()))
  }
  wantedUntilBy.delete(owner)
  const reservation = { owner, bytes, until: Date.now() + RESERVATION_MS_MAX }
  reservations.add(reservation)
  return {
    renew() {
      reservation.until = Date.now() + RESERVATION_MS_MAX
    },
    release: () => void reservations.delete(reservation),
  }
}

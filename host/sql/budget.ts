import { Refusal } from './refusal.ts'

/** The share of the budget that one result holds. */
export interface Account {
  /** Sets it at once, and no longer waits. */
  hold(bytes: number): void
  /** Raises it to this as soon as there is room; rejects when there is none for too long. */
  reserve(bytes: number): Promise<void>
}

interface Waiter {
  name: string
  bytes: number
  admit(): void
}

export interface BudgetOptions {
  bytesMax: number
  waitMs: number
}

const WAITING_MAX = 200

/**
 * Bounds the memory of all results together. A result reserves as much as it could take at most, before it is large, so
 * that no two wait for each other. One instance has at most half, of the budget and of the places in the queue.
 */
export function openBudget({ bytesMax, waitMs }: BudgetOptions) {
  const shareMax = bytesMax / 2
  const shares = new Map<string, number>()
  const waiting = new Set<Waiter>()
  let taken = 0
  const shareOf = (name: string) => shares.get(name) ?? 0

  function change(name: string, by: number) {
    const before = shareOf(name)
    const after = before + by
    // An instance that holds more than its share takes nothing from the others.
    taken += Math.min(after, shareMax) - Math.min(before, shareMax)
    if (after === 0) shares.delete(name)
    else shares.set(name, after)
    if (by < 0) admitWaiting()
  }

  const fits = (name: string, bytes: number) => taken + bytes <= bytesMax && shareOf(name) + bytes <= shareMax

  function admitWaiting() {
    for (;;) {
      const fitting = [...waiting].filter(({ name, bytes }) => fits(name, bytes))
      const [first, ...others] = fitting
      if (!first) return
      const next = others.reduce((best, other) => (shareOf(other.name) < shareOf(best.name) ? other : best), first)
      next.admit()
    }
  }

  function wait(waiter: Waiter, places: Set<() => void>): Promise<void> {
    const refusal = new Refusal('53200', 'the host has no memory left for results')
    const ofInstance = [...waiting].filter(({ name }) => name === waiter.name).length
    if (waiting.size >= WAITING_MAX || ofInstance >= WAITING_MAX / 2) return Promise.reject(refusal)
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer)
        waiting.delete(place)
        places.delete(leave)
        reject(refusal)
      }
      const admit = () => {
        resolve()
        waiter.admit()
      }
      const place = { ...waiter, admit }
      const timer = setTimeout(leave, waitMs)
      waiting.add(place)
      places.add(leave)
    })
  }

  function open(name: string): Account {
    let held = 0
    let places: Set<() => void> | undefined
    function hold(bytes: number) {
      for (const leave of places ?? []) leave()
      const by = bytes - held
      held = bytes
      if (by !== 0) change(name, by)
    }
    async function reserve(bytes: number) {
      const more = bytes - held
      if (fits(name, more)) return hold(bytes)
      places ??= new Set()
      await wait({ name, bytes: more, admit: () => hold(bytes) }, places)
    }
    return { hold, reserve }
  }
  return { open }
}

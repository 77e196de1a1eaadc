import { Refusal } from './refusal.ts'

/** The memory that one result, or one body, takes from the budget. */
export interface Account {
  /** Sets the amount at once, and cancels pending reservations. */
  hold(bytes: number): void
  /** Raises the amount as soon as the budget allows it; rejects after a timeout. */
  reserve(bytes: number): Promise<void>
}

interface Waiter {
  name: string
  bytes: number
  admit(): void
}

export interface BudgetOptions {
  /** The refusal of a request names what the memory of this budget holds. */
  purpose: 'results' | 'requests'
  bytesMax: number
  waitMs: number
}

const WAITERS_MAX = 200

/**
 * Bounds the memory of all results, or all bodies, together. Each reserves its possible maximum while it is still small, so that
 * no two wait for each other. One instance gets at most half of the budget and half of the queue.
 */
export function openBudget({ purpose, bytesMax, waitMs }: BudgetOptions) {
  const shareMax = bytesMax / 2
  const shares = new Map<string, number>()
  const waiting = new Set<Waiter>()
  let taken = 0
  const shareOf = (name: string) => shares.get(name) ?? 0

  function change(name: string, by: number) {
    const before = shareOf(name)
    const after = before + by
    // Bytes that an instance holds beyond its share do not count against the budget of the others.
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

  function wait(waiter: Waiter, reservations: Set<() => void>): Promise<void> {
    const refusal = new Refusal('53200', `the host has no memory left for ${purpose}`)
    const instanceWaiters = [...waiting].filter(({ name }) => name === waiter.name).length
    if (waiting.size >= WAITERS_MAX || instanceWaiters >= WAITERS_MAX / 2) return Promise.reject(refusal)
    return new Promise((resolve, reject) => {
      const cancel = () => {
        clearTimeout(timer)
        waiting.delete(entry)
        reservations.delete(cancel)
        reject(refusal)
      }
      const admit = () => {
        resolve()
        waiter.admit()
      }
      const entry = { ...waiter, admit }
      const timer = setTimeout(cancel, waitMs)
      waiting.add(entry)
      reservations.add(cancel)
    })
  }

  function open(name: string): Account {
    let held = 0
    let reservations: Set<() => void> | undefined
    function hold(bytes: number) {
      for (const cancel of reservations ?? []) cancel()
      const by = bytes - held
      held = bytes
      if (by !== 0) change(name, by)
    }
    async function reserve(bytes: number) {
      const more = bytes - held
      if (fits(name, more)) return hold(bytes)
      reservations ??= new Set()
      await wait({ name, bytes: more, admit: () => hold(bytes) }, reservations)
    }
    return { hold, reserve }
  }
  return { open }
}

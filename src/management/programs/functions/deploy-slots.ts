const POLL_MS = 50

interface Slots {
  max: number
  /** After which a slot that nobody renews is free again. */
  ms: number
  /** How long one waits for a slot before it is refused. */
  waitMs: number
}

/**
 * At most so many at a time for each name, for as long as they take. Who holds one renews it: a request that is dropped by its client ends
 * without a word, and its timers with it, so that its slot is free again `ms` later.
 */
export function openSlots({ max, ms, waitMs }: Slots) {
  const held = new Map<string, Set<{ endsAt: number }>>()

  function heldBy(name: string): Set<{ endsAt: number }> {
    const slots = held.get(name) ?? new Set()
    for (const slot of slots) if (slot.endsAt <= Date.now()) slots.delete(slot)
    return slots
  }

  return async function inSlot<T>(name: string, work: () => Promise<T>, refuse: () => Error): Promise<T> {
    const until = Date.now() + waitMs
    while (heldBy(name).size >= max) {
      if (Date.now() >= until) throw refuse()
      // A request must not wait for what another awaits, so it looks again and again.
      await new Promise((resolve) => setTimeout(resolve, POLL_MS * (0.5 + Math.random())))
    }
    const slots = heldBy(name)
    const slot = { endsAt: Date.now() + ms }
    held.set(name, slots.add(slot))
    const renewing = setInterval(() => {
      slot.endsAt = Date.now() + ms
    }, ms / 4)
    try {
      return await work()
    } finally {
      clearInterval(renewing)
      slots.delete(slot)
      if (slots.size === 0 && held.get(name) === slots) held.delete(name)
    }
  }
}

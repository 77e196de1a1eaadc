/**
 * At most so many at a time for each name, for as long as they take. Who holds one renews it: a request that is dropped by its client ends
 * without a word, and its timers with it, so that its slot is free again `ms` later.
 */
export function openSlots({ max, ms }: { max: number; ms: number }) {
  const held = new Map<string, Set<{ endsAt: number }>>()

  function heldBy(name: string): Set<{ endsAt: number }> {
    const slots = held.get(name) ?? new Set()
    for (const slot of slots) if (slot.endsAt <= Date.now()) slots.delete(slot)
    return slots
  }

  return async function inSlot<T>(name: string, work: () => Promise<T>, refuse: () => Error): Promise<T> {
    const slots = heldBy(name)
    if (slots.size >= max) throw refuse()
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

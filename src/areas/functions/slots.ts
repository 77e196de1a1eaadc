/**
 * At most so many at a time for each name. A slot is free again when its time is over, too, as a request that is dropped by its client
 * ends without a word.
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
    try {
      return await work()
    } finally {
      slots.delete(slot)
      if (slots.size === 0 && held.get(name) === slots) held.delete(name)
    }
  }
}

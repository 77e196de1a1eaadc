const POLL_MS = 50

interface Slots {
  max: number
  /** The time after which a slot expires if it is not renewed. */
  leaseMs: number
  /** The maximum wait for a slot. */
  waitMs: number
}

/**
 * Limits concurrent work per name. The holder of a slot renews it. If a client drops its request, the request and its timers end
 * silently, and the slot expires `leaseMs` later.
 */
export function openSlots({ max, leaseMs, waitMs }: Slots) {
  const slotsByName = new Map<string, Set<{ endsAt: number }>>()

  function activeSlots(name: string): Set<{ endsAt: number }> {
    const slots = slotsByName.get(name) ?? new Set()
    for (const slot of slots) if (slot.endsAt <= Date.now()) slots.delete(slot)
    return slots
  }

  return async function inSlot<T>(name: string, work: () => Promise<T>, refuse: () => Error): Promise<T> {
    const until = Date.now() + waitMs
    while (activeSlots(name).size >= max) {
      if (Date.now() >= until) throw refuse()
      // The wait polls, because a request in workerd must not await a promise of another request.
      await new Promise((resolve) => setTimeout(resolve, POLL_MS * (0.5 + Math.random())))
    }
    const slots = activeSlots(name)
    const slot = { endsAt: Date.now() + leaseMs }
    slotsByName.set(name, slots.add(slot))
    const renewing = setInterval(() => {
      slot.endsAt = Date.now() + leaseMs
    }, leaseMs / 4)
    try {
      return await work()
    } finally {
      clearInterval(renewing)
      slots.delete(slot)
      if (slots.size === 0 && slotsByName.get(name) === slots) slotsByName.delete(name)
    }
  }
}

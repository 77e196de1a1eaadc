export interface Event {
  at: number
  label: string
  act(): Promise<void> | void
  /** A periodic event recurs by itself, so the simulation does not continue because of it. */
  periodic: boolean
}

interface Entry extends Event {
  order: number
  canceled: boolean
}

const precedes = (a: Entry, b: Entry) => a.at < b.at || (a.at === b.at && a.order < b.order)

/** Planned events: the earliest first, and events of the same time in the order in which they were planned. */
export function createAgenda() {
  /** A binary heap: a long run holds thousands of timeouts. */
  const heap: Entry[] = []
  let order = 0
  let nonPeriodic = 0

  /** Adds an event and returns the function that removes it. */
  function add(event: Event): () => void {
    const entry = { ...event, order: order++, canceled: false }
    if (!entry.periodic) nonPeriodic += 1
    heap.push(entry)
    rise(heap.length - 1)
    return () => {
      if (entry.canceled) return
      entry.canceled = true
      if (!entry.periodic) nonPeriodic -= 1
    }
  }

  function takeNext(): Event | undefined {
    for (;;) {
      const first = takeFirst()
      if (!first) return undefined
      if (first.canceled) continue
      // From now on the event cannot be removed.
      first.canceled = true
      if (!first.periodic) nonPeriodic -= 1
      return first
    }
  }

  function takeFirst(): Entry | undefined {
    const [first] = heap
    const last = heap.pop()
    if (last && first !== last) {
      heap[0] = last
      sink()
    }
    return first
  }

  function swap(a: number, b: number): void {
    const moved = heap[a] as Entry
    heap[a] = heap[b] as Entry
    heap[b] = moved
  }

  function rise(index: number): void {
    for (let at = index; at > 0; ) {
      const parent = (at - 1) >> 1
      if (!precedes(heap[at] as Entry, heap[parent] as Entry)) return
      swap(at, parent)
      at = parent
    }
  }

  function sink(): void {
    for (let at = 0; ; ) {
      let least = at
      for (const child of [2 * at + 1, 2 * at + 2]) {
        if (child < heap.length && precedes(heap[child] as Entry, heap[least] as Entry)) least = child
      }
      if (least === at) return
      swap(at, least)
      at = least
    }
  }

  return { add, takeNext, isIdle: () => nonPeriodic === 0 }
}

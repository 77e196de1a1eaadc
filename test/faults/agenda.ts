export interface Event {
  at: number
  label: string
  act(): Promise<void> | void
  /** Comes again and again by itself, so that it is no reason to go on. */
  periodic: boolean
}

interface Entry extends Event {
  order: number
  cancelled: boolean
}

const precedes = (a: Entry, b: Entry) => a.at < b.at || (a.at === b.at && a.order < b.order)

/** What is to happen: the earliest first, and what comes at the same time in the order in which it was planned. */
export function createAgenda() {
  /** A binary heap: a long run holds thousands of timeouts. */
  const heap: Entry[] = []
  let order = 0
  let lasting = 0

  /** Returns what takes it off again. */
  function add(event: Event): () => void {
    const entry = { ...event, order: order++, cancelled: false }
    if (!entry.periodic) lasting += 1
    heap.push(entry)
    rise(heap.length - 1)
    return () => {
      if (entry.cancelled) return
      entry.cancelled = true
      if (!entry.periodic) lasting -= 1
    }
  }

  function takeNext(): Event | undefined {
    for (;;) {
      const first = takeFirst()
      if (!first) return undefined
      if (first.cancelled) continue
      // From now on it cannot be taken off.
      first.cancelled = true
      if (!first.periodic) lasting -= 1
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

  return { add, takeNext, isIdle: () => lasting === 0 }
}

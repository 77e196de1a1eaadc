interface Options {
  /** Bound of the sizes of all entries together. */
  sizeMax: number
  entriesMax?: number
  /** Time to live in milliseconds; unlimited by default. */
  ms?: number
}

/** LRU cache bounded by the sizes of its entries. It holds no promises: a promise is canceled with the request that created it. */
export class SizedCache<T> {
  readonly #limits: Required<Options>
  readonly #entries = new Map<string, { value: T; size: number; at: number }>()
  #size = 0

  constructor({ sizeMax, entriesMax = Number.POSITIVE_INFINITY, ms = Number.POSITIVE_INFINITY }: Options) {
    this.#limits = { sizeMax, entriesMax, ms }
  }

  get(key: string, now = Date.now()): T | undefined {
    const found = this.#entries.get(key)
    if (!found || now < found.at || now - found.at > this.#limits.ms) return undefined
    // Inserted anew, so that the least recently used entry is the first.
    this.#entries.delete(key)
    this.#entries.set(key, found)
    return found.value
  }

  set(key: string, value: T, size: number, now = Date.now()): void {
    const { sizeMax, entriesMax } = this.#limits
    this.delete(key)
    if (size > sizeMax) return
    this.#entries.set(key, { value, size, at: now })
    this.#size += size
    for (const oldest of this.#entries.keys()) {
      if (this.#size <= sizeMax && this.#entries.size <= entriesMax) return
      this.delete(oldest)
    }
  }

  delete(key: string): void {
    this.#size -= this.#entries.get(key)?.size ?? 0
    this.#entries.delete(key)
  }
}

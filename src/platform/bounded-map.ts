/** A map that evicts the entry that was set longest ago when it is full. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #entriesMax: number

  constructor(entriesMax: number) {
    super()
    this.#entriesMax = entriesMax
  }

  /** Sets the entry and makes it the newest one. */
  override set(key: K, value: V): this {
    this.delete(key)
    const [oldest] = this.keys()
    if (this.size >= this.#entriesMax && oldest !== undefined) this.delete(oldest)
    return super.set(key, value)
  }
}

interface Options {
  bytesMax: number
  /** Time to live in milliseconds; unlimited by default. */
  ms?: number
}

/** LRU cache bounded in bytes. It holds no promises: a promise is canceled with the request that created it. */
export function openCache<T>({ bytesMax, ms = Number.POSITIVE_INFINITY }: Options) {
  const entries = new Map<string, { value: T; bytes: number; at: number }>()
  let total = 0

  function remove(key: string): void {
    total -= entries.get(key)?.bytes ?? 0
    entries.delete(key)
  }

  return {
    get(key: string): T | undefined {
      const found = entries.get(key)
      if (!found) return undefined
      remove(key)
      if (Date.now() - found.at > ms) return undefined
      entries.set(key, found)
      total += found.bytes
      return found.value
    },
    set(key: string, value: T, bytes: number): void {
      remove(key)
      if (bytes > bytesMax) return
      entries.set(key, { value, bytes, at: Date.now() })
      total += bytes
      for (const oldest of entries.keys()) {
        if (total <= bytesMax) return
        remove(oldest)
      }
    },
  }
}

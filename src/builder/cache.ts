interface Options {
  bytesMax: number
  /** How long a value counts; for ever unless told. */
  ms?: number
}

/** Keeps what was used last, up to so many bytes. Whole values only: a promise would die with the request that made it. */
export function openCache<T>({ bytesMax, ms = Number.POSITIVE_INFINITY }: Options) {
  const kept = new Map<string, { value: T; bytes: number; at: number }>()
  let total = 0

  function remove(key: string): void {
    total -= kept.get(key)?.bytes ?? 0
    kept.delete(key)
  }

  return {
    get(key: string): T | undefined {
      const found = kept.get(key)
      if (!found) return undefined
      remove(key)
      if (Date.now() - found.at > ms) return undefined
      kept.set(key, found)
      total += found.bytes
      return found.value
    },
    set(key: string, value: T, bytes: number): void {
      remove(key)
      if (bytes > bytesMax) return
      kept.set(key, { value, bytes, at: Date.now() })
      total += bytes
      for (const oldest of kept.keys()) {
        if (total <= bytesMax) return
        remove(oldest)
      }
    },
  }
}

/** An entry holds the bytes of one version, which never change. */
const ENTRY_BYTES_MAX = 128 * 1024
const BYTES_MAX = 16 * 1024 * 1024

const entries = new Map<string, Uint8Array<ArrayBuffer>>()
let bytes = 0

export const isCacheable = (size: number): boolean => size <= ENTRY_BYTES_MAX

/** Bytes that this isolate read before. Callers check the permission to read them before each use. */
export function cachedBytes(key: string): Uint8Array<ArrayBuffer> | undefined {
  const found = entries.get(key)
  if (!found) return undefined
  // Re-inserted, so that the least recently read entry is first and is evicted first.
  entries.delete(key)
  entries.set(key, found)
  return found
}

export function cacheBytes(key: string, value: Uint8Array<ArrayBuffer>): void {
  if (entries.has(key) || !isCacheable(value.length)) return
  entries.set(key, value)
  bytes += value.length
  for (const [oldest, { length }] of entries) {
    if (bytes <= BYTES_MAX) return
    entries.delete(oldest)
    bytes -= length
  }
}

/** Sets an entry as the newest one of a map, which drops its oldest when it is full. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, entriesMax: number): void {
  map.delete(key)
  const [oldest] = map.keys()
  if (map.size >= entriesMax && oldest !== undefined) map.delete(oldest)
  map.set(key, value)
}

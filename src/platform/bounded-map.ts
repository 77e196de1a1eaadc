/** Sets an entry and makes it the newest of the map. Evicts the oldest entry if the map is full. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, entriesMax: number): void {
  map.delete(key)
  const [oldest] = map.keys()
  if (map.size >= entriesMax && oldest !== undefined) map.delete(oldest)
  map.set(key, value)
}

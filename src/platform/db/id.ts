/** A version 7 UUID, as the database's own `uuidv7()` makes them, for rows whose id must be known before they are written. */
export function newTimedId(at: Date): string {
  const time = at.getTime().toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice(15)}`
}

/** The least version 7 id of a moment, in epoch milliseconds: rows before it are found along an index of ids. */
export function firstIdOf(at: number): string {
  const hex = at.toString(16).padStart(12, '0')
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`
}

/** Generates a version 7 UUID, like `uuidv7()` of the database, for rows whose id must be known before the insert. */
export function newTimedId(at: Date): string {
  const time = at.getTime().toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice(15)}`
}

/** Returns the smallest version 7 UUID of a time in epoch milliseconds, to find rows by age through an index on ids. */
export function firstIdOf(at: number): string {
  const hex = at.toString(16).padStart(12, '0')
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`
}

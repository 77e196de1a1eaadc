/** A version 7 UUID, as the database's own `uuidv7()` makes them, for rows whose id must be known before they are written. */
export function newTimedId(at: Date): string {
  const time = at.getTime().toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice(15)}`
}

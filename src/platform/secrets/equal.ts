import { timingSafeEqual } from 'node:crypto'

/** Compares in constant time, so that a secret cannot be guessed byte by byte. */
export function isSameSecret(given: string, secret: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(secret)]
  return a.length === b.length && timingSafeEqual(a, b)
}

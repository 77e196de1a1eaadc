import { timingSafeEqual } from 'node:crypto'

/** Takes as long whatever they have in common, so that a secret cannot be guessed piece by piece. */
export function isSameSecret(given: string, secret: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(secret)]
  return a.length === b.length && timingSafeEqual(a, b)
}

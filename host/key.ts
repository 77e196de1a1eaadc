import { createHash, timingSafeEqual } from 'node:crypto'

/** The secret with which the control plane authenticates at the host. */
export interface HostKey {
  matches(candidate: string | undefined): boolean
}

const digest = (text: string) => createHash('sha256').update(text).digest()

export function hostKey(secret: string): HostKey {
  const expected = digest(secret)
  return { matches: (candidate) => candidate !== undefined && timingSafeEqual(digest(candidate), expected) }
}

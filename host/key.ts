import { createHash, timingSafeEqual } from 'node:crypto'
import { isHostToken } from '../src/platform/secrets/host-token.ts'

/** The secret with which the control plane authenticates at the host. */
export interface HostKey {
  matches(candidate: string | undefined): boolean
  /** Whether a token in a URL stands for the key, for sessions of this instance. */
  acceptsToken(token: string, instance: string): boolean
}

const digest = (text: string) => createHash('sha256').update(text).digest()

export function hostKey(secret: string): HostKey {
  const expected = digest(secret)
  return {
    matches: (candidate) => candidate !== undefined && timingSafeEqual(digest(candidate), expected),
    acceptsToken: (token, instance) => isHostToken(secret, token, instance),
  }
}

import { isSameSecret } from '../src/platform/secrets/equal.ts'
import { isHostToken } from '../src/platform/secrets/host-token.ts'

/** The secret with which the control plane authenticates at the host. */
export interface HostKey {
  matches(candidate: string | undefined): boolean
  /** Whether a token in a URL stands for the key, for sessions of this instance. */
  acceptsToken(token: string, instance: string): boolean
}

export const hostKey = (secret: string): HostKey => ({
  matches: (candidate) => candidate !== undefined && isSameSecret(candidate, secret),
  acceptsToken: (token, instance) => isHostToken(secret, token, instance),
})

import { isSameSecret } from '../src/platform/secrets/equal.ts'
import { isHostToken, type TokenPurpose } from '../src/platform/secrets/host-token.ts'

/** The secret with which the control plane authenticates at the host. */
export interface HostKey {
  matches(candidate: string | undefined): boolean
  /** Whether a token stands for the key, for this purpose and sessions of this instance. */
  acceptsToken(token: string, purpose: TokenPurpose, instance: string): boolean
}

export const hostKey = (secret: string): HostKey => ({
  matches: (candidate) => candidate !== undefined && isSameSecret(candidate, secret),
  acceptsToken: (token, purpose, instance) => isHostToken(secret, token, { purpose, instance }),
})

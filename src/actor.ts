import type { Scope } from './model/scopes.ts'

interface Account {
  tokenId: string
  /** The access token as the client sent it. It is never stored and never logged. */
  token: string
  userId: string
  username: string
  primaryEmail: string
  /** True if an operator has disabled the user: the user may then call public routes only. */
  isDisabled: boolean
  scopes: readonly Scope[]
  /** The only organization that the token can reach; undefined for all organizations of the user. */
  organizationId?: string
  /** Expiry of the token in epoch milliseconds. A cache must not keep the token for longer. */
  expiresAt?: number
}

/** A user with a personal access token, or an OAuth application on behalf of a user who approved its scopes. */
export type Caller = (Account & { kind: 'user' }) | (Account & { kind: 'oauthApp'; appId: string })

/** The party that a context acts for: a caller, a client without a valid token, or the installation itself. */
export type Actor = Caller | { kind: 'anonymous' } | { kind: 'system' }

/** The caller; undefined for a client without a valid token and for the installation itself. */
export function callerOf(actor: Actor): Caller | undefined {
  switch (actor.kind) {
    case 'user':
    case 'oauthApp':
      return actor
    case 'anonymous':
    case 'system':
      return undefined
  }
}

/** The caller's OAuth application; undefined for a personal access token. */
export const appIdOf = (actor: Actor): string | undefined => (actor.kind === 'oauthApp' ? actor.appId : undefined)

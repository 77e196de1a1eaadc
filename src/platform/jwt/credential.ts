export type Claims = Record<string, unknown>

/** A caller of a project's services: the database role, and the claims that row-level policies can read. */
export interface Credential {
  role: string
  claims: Claims
  userId?: string
}

/** The message is sent to the client, in the words of the hosted service. */
export class InvalidCredential extends Error {
  override name = 'InvalidCredential'
}

export type Claims = Record<string, unknown>

/** Who calls a project's own services: the database role that decides, and what its policies may read. */
export interface Credential {
  role: string
  claims: Claims
  userId?: string
}

/** The message is what the caller is told, in the words that clients know. */
export class InvalidCredential extends Error {
  override name = 'InvalidCredential'
}

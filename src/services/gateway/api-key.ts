import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { hashApiKey } from '../../model/secrets/api-key.ts'
import { apiKeys } from '../../model/tables/index.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { type Claims, type Credential, InvalidCredential } from '../../platform/jwt/credential.ts'
import type { Trust } from './trust.ts'

export const isApiKey = (token: string): boolean => /^sb_(publishable|secret)_/.test(token)

const ANONYMOUS = { role: 'anon' }

/** Resolves an API key (`sb_…`) to its role and claims; throws InvalidCredential. */
export async function credentialOfApiKey(trust: Trust, key: string): Promise<Credential> {
  const found = trust.apiKeys.get(await hashApiKey(key))
  if (!found) throw new InvalidCredential('Invalid API key')
  const claims: Claims = found.template ?? ANONYMOUS
  const { role, sub } = claims
  // The template was validated when it was stored; the role is checked again because the database trusts it.
  if (typeof role !== 'string') throw new Error(`the API key ${found.id} has no role`)
  return { role, claims, ...(typeof sub === 'string' && { userId: sub }) }
}

const REFS_MAX = 1_000
/** Project refs by key hash. A key never moves to another project; its project decides whether it is still valid. */
const refs = new BoundedMap<string, string>(REFS_MAX)

/** The project that the key belongs to, for a request whose address names no project. */
export async function projectOfApiKey({ db }: SystemCtx, key: string): Promise<string | undefined> {
  const hash = await hashApiKey(key)
  const known = refs.get(hash)
  if (known !== undefined) return known
  const [row] = await db.select({ ref: apiKeys.projectRef }).from(apiKeys).where(eq(apiKeys.hash, hash))
  if (!row) return undefined
  refs.set(hash, row.ref)
  return row.ref
}

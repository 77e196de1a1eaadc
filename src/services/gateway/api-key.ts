import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { hashApiKey } from '../../model/secrets/api-key.ts'
import { apiKeys } from '../../model/tables/index.ts'
import { type Claims, type Credential, InvalidCredential } from '../../platform/jwt/credential.ts'
import type { Trust } from './trust.ts'

export const isApiKey = (token: string): boolean => /^sb_(publishable|secret)_/.test(token)

const ANONYMOUS = { role: 'anon' }

/** Whom a key of the form `sb_…` stands for; throws InvalidCredential. */
export async function credentialOfApiKey(trust: Trust, key: string): Promise<Credential> {
  const found = trust.apiKeys.get(await hashApiKey(key))
  if (!found) throw new InvalidCredential('Invalid API key')
  const claims: Claims = found.template ?? ANONYMOUS
  const { role, sub } = claims
  // It was looked at when it was set; this is what decides which role the database is asked as.
  if (typeof role !== 'string') throw new Error(`the API key ${found.id} has no role`)
  return { role, claims, ...(typeof sub === 'string' && { userId: sub }) }
}

const OWNERS_MAX = 1_000
/** By hash. A key never changes hands; whether it still holds, its project says. */
const owners = new Map<string, string>()

/** For who was told no project: the one whose key it is. */
export async function projectOfApiKey({ db }: SystemCtx, key: string): Promise<string | undefined> {
  const hash = await hashApiKey(key)
  const known = owners.get(hash)
  if (known !== undefined) return known
  const [row] = await db.select({ ref: apiKeys.projectRef }).from(apiKeys).where(eq(apiKeys.hash, hash))
  if (!row) return undefined
  if (owners.size >= OWNERS_MAX) owners.clear()
  owners.set(hash, row.ref)
  return row.ref
}

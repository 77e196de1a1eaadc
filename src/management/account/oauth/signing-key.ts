import { desc } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { oauthKeyAssociatedData } from '../../../model/secrets/associated-data.ts'
import { oauthSigningKeys } from '../../../model/tables/index.ts'
import type { Jwk } from '../../../platform/jwt/jwk.ts'
import { seal, unseal } from '../../../platform/secrets/seal.ts'
import { generateKeyPair } from '../../keys/signing-keys/key-pair.ts'

/** The algorithm that every OpenID client must support (OpenID Connect Core 1.0, 15.1). */
export const SIGNING_ALGORITHM = 'RS256'

export interface SigningKey {
  id: string
  privateJwk: Jwk
}

/** Returns the signing key, which is created when it is first needed. */
export async function getSigningKey(ctx: SystemCtx): Promise<SigningKey> {
  const { db, config } = ctx
  const [known] = await db.select().from(oauthSigningKeys).orderBy(desc(oauthSigningKeys.createdAt)).limit(1)
  if (!known) return createSigningKey(ctx)
  const { id, sealedPrivateJwk } = known
  return {
    id,
    privateJwk: JSON.parse(await unseal(config.ENCRYPTION_KEY, sealedPrivateJwk, oauthKeyAssociatedData(id))),
  }
}

async function createSigningKey({ db, config, now }: SystemCtx): Promise<SigningKey> {
  const { id, privateJwk, publicJwk } = await generateKeyPair(SIGNING_ALGORITHM)
  if (!publicJwk) throw new Error(`a key for ${SIGNING_ALGORITHM} has no public part`)
  const sealedPrivateJwk = await seal(config.ENCRYPTION_KEY, JSON.stringify(privateJwk), oauthKeyAssociatedData(id))
  await db.insert(oauthSigningKeys).values({ id, publicJwk, sealedPrivateJwk, createdAt: now() })
  return { id, privateJwk }
}

export async function publicKeysOf({ db }: SystemCtx) {
  const rows = await db.select({ jwk: oauthSigningKeys.publicJwk }).from(oauthSigningKeys)
  return rows.map(({ jwk }) => jwk)
}

import { hashToken, randomHex } from '../../../access/token.ts'
import type { Ctx } from '../../../ctx.ts'
import { oauthGrants } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { issueAccessToken } from './grants.ts'
import { signIdToken } from './id-token.ts'
import type { App } from './oauth-client.ts'
import type { Challenge } from './pkce.ts'
import type { SigningKey } from './signing-key.ts'

/** Lifetime of a code, which a program exchanges at once (RFC 6749, 4.1.2: at most ten minutes). */
const CODE_MS = 5 * 60_000
/** Lifetime of a token sent through the browser: it may be in the history, and scripts of the page can read it. */
const BROWSER_TOKEN_MS = 15 * 60_000

type NewGrant = Pick<
  typeof oauthGrants.$inferInsert,
  'appId' | 'userId' | 'organizationId' | 'approvedBy' | 'scopes' | 'redirectUri'
> & { createdAt: Date }

export async function respondWithCode({ tx }: Mutation, grant: NewGrant, challenge: Challenge | undefined) {
  const code = randomHex()
  await tx.insert(oauthGrants).values({
    ...grant,
    codeHash: await hashToken(code),
    codeChallenge: challenge?.value ?? null,
    codeChallengeMethod: challenge?.method ?? null,
    expiresAt: new Date(grant.createdAt.getTime() + CODE_MS),
  })
  return { code }
}

interface Tokens {
  app: App
  grant: NewGrant
  /** Expiry of the user's approving access token; null for never. */
  approverEndsAt: Date | null
  /** Undefined if no ID token is requested. */
  idToken: { nonce: string; key: SigningKey } | undefined
}

/** Responds with an access token (RFC 6749, 4.2.2). The grant ends with the token, as it cannot be refreshed. */
export async function respondWithToken(
  ctx: Ctx,
  mutation: Mutation,
  { app, grant, approverEndsAt, idToken }: Tokens,
): Promise<Record<string, string>> {
  const { createdAt: now, scopes } = grant
  const endsAt = now.getTime() + BROWSER_TOKEN_MS
  const expiresAt = new Date(Math.min(endsAt, approverEndsAt?.getTime() ?? endsAt))
  const inserted = requireRow(
    await mutation.tx
      .insert(oauthGrants)
      .values({ ...grant, codeUsedAt: now, expiresAt })
      .returning(),
  )
  const { expires_in, ...issued } = await issueAccessToken(mutation, { app, grant: inserted, scopes, now, expiresAt })
  const response = { ...issued, expires_in: String(expires_in) }
  if (!idToken) return response
  const identity = { appId: app.id, userId: grant.userId, accessToken: issued.access_token }
  return { ...response, id_token: await signIdToken(ctx, { ...idToken, ...identity, expiresInSeconds: expires_in }) }
}

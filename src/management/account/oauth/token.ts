import { and, eq } from 'drizzle-orm'
import { hashToken } from '../../../access/token.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { JWT_BEARER, oauthGrants } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { hmacOf } from '../../../platform/secrets/digest.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { invalidGrant } from './assertion.ts'
import { exchangeAssertion } from './assertion-grant.ts'
import { continueGrant, endGrants, familyOf, type Grant, issueTokens, mutateGrant } from './grants.ts'
import { type App, authenticateClient, type SentCredentials } from './oauth-client.ts'
import { matchesChallenge } from './pkce.ts'
import { isOwnResource } from './resource.ts'
import type { ExchangeToken } from './schema.ts'
import { chooseScopes } from './scopes.ts'

/** Exchanges a code, a refresh token or an assertion for tokens. */
export async function exchangeToken(ctx: SystemCtx, body: ExchangeToken, headers: Headers) {
  const { grant_type: type, resource } = body
  if (type === undefined) throw invalidField('body.grant_type', 'is missing')
  const app = await authenticateClient(ctx, body, headers.get('authorization'))
  if (!isOwnResource(ctx, resource)) throw new ApiError('oauth.invalid_target')
  if (type === 'authorization_code') return exchangeCode(ctx, app, body)
  if (type === 'refresh_token') return exchangeRefreshToken(ctx, app, body)
  if (type === JWT_BEARER) return exchangeAssertion(ctx, app, body)
  throw new ApiError('oauth.unsupported_grant_type')
}

/** Exchanges a code. A second use means that it was stolen, so the tokens of the first use end too (RFC 6749, 4.1.2). */
async function exchangeCode(ctx: SystemCtx, app: App, { code, code_verifier: verifier, redirect_uri }: ExchangeToken) {
  if (code === undefined) throw invalidField('body.code', 'is missing')
  if (redirect_uri === undefined) throw invalidField('body.redirect_uri', 'is missing')
  const codeHash = await hashToken(code)
  const now = ctx.now()
  const issued = await mutateGrant(ctx, app, eq(oauthGrants.codeHash, codeHash), async (mutation, locked) => {
    if (!locked) throw invalidGrant('the code was not issued to this application')
    const { grant, isValid } = locked
    if (grant.codeUsedAt) return endGrants(mutation, grant, eq(oauthGrants.id, grant.id), 'code used twice')
    if (grant.expiresAt <= now) throw invalidGrant('the code has expired')
    if (!isValid) throw invalidGrant('the authorization has ended, or access is disabled')
    if (grant.redirectUri !== redirect_uri)
      throw invalidGrant('redirect_uri does not match the one that the code was sent to')
    if (!matchesChallenge(verifier, challengeOf(grant)))
      throw invalidGrant('code_verifier does not match the code_challenge')
    const { organizationId, userId, scopes } = grant
    const actor = { actorUserId: userId, actorAppId: app.id }
    await mutation.trace({ action: 'oauth_app.exchange', organizationId, detail: { app: app.id, scopes } }, actor)
    return issueTokens(mutation, { app, locked, scopes, now })
  })
  if (!issued) throw invalidGrant('the code was already used: its authorization is revoked')
  return issued
}

const challengeOf = ({ codeChallenge: value, codeChallengeMethod: method }: Grant) =>
  value === null || method === null ? undefined : { value, method }

/** Time for which a replaced refresh token is accepted, because the reply to its first use may have been lost. */
const RETRY_MS = 10_000

/** Exchanges a refresh token. A late second use means that it was stolen, so the whole authorization ends (RFC 9700, 4.14.2). */
async function exchangeRefreshToken(ctx: SystemCtx, app: App, { refresh_token: token, scope }: ExchangeToken) {
  if (token === undefined) throw invalidField('body.refresh_token', 'is missing')
  const family = familyOf(token)
  if (family === undefined) throw invalidGrant('this is not a refresh token')
  const [familyHash, hash] = await Promise.all([hashToken(family), hashToken(token)])
  const now = ctx.now()
  const ofFamily = eq(oauthGrants.refreshFamilyHash, familyHash)
  const issued = await mutateGrant(ctx, app, ofFamily, async (mutation, locked) => {
    if (!locked) throw invalidGrant('the refresh token was not issued to this application, or it is revoked')
    const { grant, isValid } = locked
    const replacedAt = isSameSecret(hash, grant.previousRefreshHash ?? '') ? grant.refreshedAt : null
    const isRetry = replacedAt !== null && now.getTime() - replacedAt.getTime() < RETRY_MS
    if (!isRetry && !isSameSecret(hash, grant.refreshHash ?? ''))
      return endGrants(mutation, grant, eq(oauthGrants.id, grant.id), 'refresh token used twice')
    if (grant.expiresAt <= now) throw invalidGrant('the refresh token has expired')
    if (!isValid) throw invalidGrant('the authorization has ended, or access is disabled')
    const scopes = chooseScopes(scope, grant.scopes)
    if (!scopes) throw new ApiError('oauth.invalid_scope')
    // The next token depends on this one only, so that processes that refresh at the same time all continue with one token.
    const refreshToken = family + (await hmacOf(ctx.config.ENCRYPTION_KEY, token)).slice(0, 40)
    const changes = isRetry ? {} : { previousRefreshHash: hash, refreshedAt: now }
    return continueGrant(mutation, { app, locked, scopes, now }, { refreshToken, changes })
  })
  if (!issued) throw invalidGrant('the refresh token was already used: its authorization is revoked')
  return issued
}

/** Revokes the user's approvals of the application in the organization. Unknown tokens are ignored (RFC 7009, 2.2). */
export async function revokeToken(
  ctx: SystemCtx,
  body: Required<SentCredentials> & { refresh_token: string },
): Promise<void> {
  const app = await authenticateClient(ctx, body, null)
  const family = familyOf(body.refresh_token)
  if (family === undefined) return
  const familyHash = await hashToken(family)
  await mutateGrant(ctx, app, eq(oauthGrants.refreshFamilyHash, familyHash), async (mutation, locked) => {
    if (!locked) return
    const { userId, organizationId } = locked.grant
    const ofUser = [eq(oauthGrants.userId, userId), eq(oauthGrants.organizationId, organizationId)]
    const all = and(eq(oauthGrants.appId, app.id), ...ofUser)
    if (all) await endGrants(mutation, locked.grant, all, 'requested')
  })
}

import { and, desc, eq, gt, isNotNull, isNull, or, sql } from 'drizzle-orm'
import { hashToken } from '../../../access/token.ts'
import type { SystemCtx } from '../../../ctx.ts'
import {
  accessTokens,
  assertionIssuers,
  JWT_BEARER,
  oauthGrants,
  organizations,
  usedAssertions,
  users,
} from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { UUID } from '../../../platform/identifiers.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { requirePlan } from '../organizations/plan-features.ts'
import { type Assertion, invalidGrant, readAssertion } from './assertion.ts'
import { continueGrant, mutateGrant } from './grants.ts'
import { currentKeys, type IssuerRow } from './issuer-keys.ts'
import type { App } from './oauth-client.ts'
import type { ExchangeToken } from './schema.ts'
import { chooseScopes } from './scopes.ts'

/**
 * Exchanges an assertion for an access token (RFC 7523, 2.1). The issuer only identifies the user; the user has approved the scopes,
 * so an issuer cannot act for users who never approved the application.
 */
export async function exchangeAssertion(ctx: SystemCtx, app: App, { assertion: text, scope }: ExchangeToken) {
  if (text === undefined) throw invalidField('body.assertion', 'is missing')
  if (!app.grantTypes.includes(JWT_BEARER)) {
    throw new ApiError('oauth.unauthorized_client', { detail: `the application is not registered for ${JWT_BEARER}` })
  }
  const assertion = readAssertion(ctx, app, text)
  const approval = await findApproval(ctx, app, assertion)
  requirePlan(approval, 'assertions')
  const { claims, expiresAt } = assertion
  const id = await hashToken(JSON.stringify([claims.iss, claims.jti]))
  const now = ctx.now()
  return mutateGrant(ctx, app, eq(oauthGrants.id, approval.grantId), async (mutation, locked) => {
    const { tx, trace } = mutation
    await lockIssuer(tx, approval.issuer)
    if (!locked?.isValid) throw invalidGrant('the authorization has ended, or access is disabled')
    const { organizationId, userId, scopes: approved } = locked.grant
    const asserted = claims.scope?.split(' ')
    const scopes = chooseScopes(scope, asserted ? approved.filter((name) => asserted.includes(name)) : approved)
    if (!scopes || scopes.length === 0) throw new ApiError('oauth.invalid_scope')
    const [first] = await tx.insert(usedAssertions).values({ id, expiresAt }).onConflictDoNothing().returning()
    if (!first) throw invalidGrant('the assertion was already used')
    const actor = { actorUserId: userId, actorAppId: app.id }
    const detail = { app: app.id, scopes, issuer: claims.iss }
    await trace({ action: 'oauth_app.assert', organizationId, detail }, actor)
    return continueGrant(mutation, { app, locked, scopes, now })
  })
}

/** Locks the issuer, which may have been replaced or deleted while its keys were fetched. */
async function lockIssuer(tx: Writer, { organizationId, updatedAt }: IssuerRow): Promise<void> {
  const [issuer] = await tx
    .select({ issuer: assertionIssuers.issuer })
    .from(assertionIssuers)
    .where(and(eq(assertionIssuers.organizationId, organizationId), eq(assertionIssuers.updatedAt, updatedAt)))
    .for('share')
  if (!issuer) throw invalidGrant('the organization no longer trusts the signer of the assertion')
}

const APPROVALS_MAX = 50

/** Finds the user's approval of the application in the only organization that trusts the signer. */
async function findApproval(ctx: SystemCtx, app: App, assertion: Assertion) {
  const approvals = await listApprovals(ctx, app, assertion)
  const trusted: typeof approvals = []
  for (const approval of approvals) {
    if (await assertion.isSignedBy(await currentKeys(ctx, approval.issuer, assertion.kid))) trusted.push(approval)
  }
  const [only, second] = trusted
  // Every missing part has the same error: a caller who cannot sign must learn nothing about users.
  if (!only)
    throw invalidGrant('no organization in which this user approved the application trusts the signer of the assertion')
  if (second)
    throw invalidGrant(
      'several organizations trust the signer of the assertion: aud_tenant must be the slug of one of them',
    )
  return only
}

/** Lists the newest approval of each user and organization whose approving token is still valid. */
const listApprovals = ({ db, now }: SystemCtx, app: App, { claims: { iss, aud_tenant: slug }, user }: Assertion) =>
  db
    .selectDistinctOn([oauthGrants.organizationId, oauthGrants.userId], {
      issuer: assertionIssuers,
      plan: organizations.plan,
      grantId: oauthGrants.id,
    })
    .from(assertionIssuers)
    .innerJoin(organizations, eq(organizations.id, assertionIssuers.organizationId))
    .innerJoin(oauthGrants, eq(oauthGrants.organizationId, assertionIssuers.organizationId))
    .innerJoin(users, eq(users.id, oauthGrants.userId))
    .innerJoin(accessTokens, eq(accessTokens.id, oauthGrants.approvedBy))
    .where(
      and(
        eq(assertionIssuers.issuer, iss),
        slug === undefined ? undefined : eq(organizations.slug, slug),
        eq(oauthGrants.appId, app.id),
        // A grant of the implicit flow has no refresh token and ends with its access token.
        isNotNull(oauthGrants.refreshHash),
        gt(oauthGrants.expiresAt, now()),
        UUID.test(user.toLowerCase()) ? eq(users.id, user) : sql`lower(${users.primaryEmail}) = lower(${user})`,
        isNull(accessTokens.revokedAt),
        or(isNull(accessTokens.expiresAt), gt(accessTokens.expiresAt, now())),
      ),
    )
    .orderBy(oauthGrants.organizationId, oauthGrants.userId, desc(oauthGrants.createdAt))
    .limit(APPROVALS_MAX)

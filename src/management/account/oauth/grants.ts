import { and, eq, type SQL, sql } from 'drizzle-orm'
import { hashToken, newAccessToken, randomHex } from '../../../access/token.ts'
import type { Scope } from '../../../model/scopes.ts'
import { accessTokens, memberRoles, oauthGrants, organizations, users } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import type { App } from './oauth-client.ts'

export type Grant = typeof oauthGrants.$inferSelect

const ACCESS_MS = 60 * 60_000
/** Without a refresh for so long an authorization ends by itself. */
const REFRESH_MS = 60 * 86_400_000

/** `sbr_`, the half that all refresh tokens of an authorization have, the half of this one. */
const REFRESH_TOKEN = /^(sbr_[0-9a-f]{40})[0-9a-f]{40}$/

/** What its family is looked up by; undefined for what is no refresh token. */
export const familyOf = (refreshToken: string): string | undefined => REFRESH_TOKEN.exec(refreshToken)?.[1]

interface Held {
  grant: Grant
  /** When the token ends by which the user approved it; null for never. */
  approverEndsAt: Date | null
  /** That token works, and the user is still in the organization; neither of the two is disabled. */
  holds: boolean
}

/** Of this application, and nobody else's until the transaction ends. */
export async function holdGrant({ tx }: Mutation, app: App, which: SQL, now: Date): Promise<Held | undefined> {
  const isMember = sql<boolean>`exists (select from ${memberRoles}
    join ${users} u on u.id = ${memberRoles.userId} and u.disabled_at is null
    join ${organizations} o on o.id = ${memberRoles.organizationId} and o.disabled_at is null
    where ${memberRoles.organizationId} = ${oauthGrants.organizationId} and ${memberRoles.userId} = ${oauthGrants.userId})`
  const [row] = await tx
    .select({ grant: oauthGrants, revokedAt: accessTokens.revokedAt, endsAt: accessTokens.expiresAt, isMember })
    .from(oauthGrants)
    .innerJoin(accessTokens, eq(accessTokens.id, oauthGrants.approvedBy))
    .where(and(which, eq(oauthGrants.appId, app.id)))
    .for('update', { of: oauthGrants })
  if (!row) return undefined
  const { grant, revokedAt, endsAt } = row
  return {
    grant,
    approverEndsAt: endsAt,
    holds: row.isMember && revokedAt === null && (endsAt === null || endsAt > now),
  }
}

interface NewAccessToken {
  app: App
  grant: Grant
  scopes: readonly Scope[]
  now: Date
  expiresAt: Date
}

/** An access token that ends with its grant. */
export async function issueAccessToken(
  { tx }: Pick<Mutation, 'tx'>,
  { app, grant, scopes, now, expiresAt }: NewAccessToken,
) {
  const accessToken = newAccessToken('sbp_oauth_')
  await tx.insert(accessTokens).values({
    hash: await hashToken(accessToken),
    name: app.name,
    userId: grant.userId,
    oauthAppId: app.id,
    organizationId: grant.organizationId,
    oauthGrantId: grant.id,
    scopes: [...scopes],
    createdAt: now,
    expiresAt,
  })
  return {
    access_token: accessToken,
    expires_in: Math.floor((expiresAt.getTime() - now.getTime()) / 1000),
    token_type: 'Bearer' as const,
    scope: scopes.join(' '),
  }
}

interface Issue {
  app: App
  held: Held
  scopes: readonly Scope[]
  now: Date
}

/** An access token, and a refresh token in place of the code or of the one before, whose family it is of. Neither outlives what the user approved it by. */
export async function issueTokens(mutation: Mutation, issue: Issue, family = `sbr_${randomHex()}`) {
  const refreshToken = family + randomHex()
  const issued = await continueGrant(mutation, issue, {
    codeUsedAt: issue.held.grant.codeUsedAt ?? issue.now,
    refreshFamilyHash: await hashToken(family),
    refreshHash: await hashToken(refreshToken),
  })
  return { ...issued, refresh_token: refreshToken }
}

/** An access token alone. The authorization is in use, so it lasts. */
export async function continueGrant(
  { tx }: Mutation,
  { app, held, scopes, now }: Issue,
  changes: Partial<typeof oauthGrants.$inferInsert> = {},
) {
  const { grant, approverEndsAt } = held
  const until = (ms: number) =>
    new Date(Math.min(now.getTime() + ms, approverEndsAt?.getTime() ?? Number.POSITIVE_INFINITY))
  const issued = await issueAccessToken({ tx }, { app, grant, scopes, now, expiresAt: until(ACCESS_MS) })
  await tx
    .update(oauthGrants)
    .set({ ...changes, expiresAt: until(REFRESH_MS) })
    .where(eq(oauthGrants.id, grant.id))
  return { ...issued, project_refs: null }
}

/** With all its tokens. `reason` is for the audit log. */
export async function endGrants({ tx, trace }: Mutation, grant: Grant, which: SQL, reason: string): Promise<void> {
  await tx.delete(oauthGrants).where(which)
  const { appId, userId, organizationId } = grant
  const actor = { actorUserId: userId, actorAppId: appId }
  await trace({ action: 'oauth_app.revoke', organizationId, detail: { app: appId, user: userId, reason } }, actor)
}

import { and, eq, type SQL, sql } from 'drizzle-orm'
import { hashToken, newAccessToken, randomHex } from '../../../access/token.ts'
import type { SystemCtx } from '../../../ctx.ts'
import type { Scope } from '../../../model/scopes.ts'
import { accessTokens, memberRoles, oauthGrants, organizations, users } from '../../../model/tables/index.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { withUserSession } from '../../kernel/user-sessions.ts'
import type { App } from './oauth-client.ts'

export type Grant = typeof oauthGrants.$inferSelect

const ACCESS_MS = 60 * 60_000
/** An authorization ends after this time without a refresh. */
const REFRESH_MS = 60 * 86_400_000

/** Refresh token: `sbr_`, a half shared by all refresh tokens of an authorization, and a half of its own. */
const REFRESH_TOKEN = /^(sbr_[0-9a-f]{40})[0-9a-f]{40}$/

/** Returns the part of a refresh token that identifies its authorization; undefined for a malformed token. */
export const familyOf = (refreshToken: string): string | undefined => REFRESH_TOKEN.exec(refreshToken)?.[1]

interface LockedGrant {
  grant: Grant
  /** Expiry of the user's approving access token; null for never. */
  approverEndsAt: Date | null
  /** Whether the approving token is valid, and the user is still a member. Neither user nor organization may be disabled. */
  isValid: boolean
}

/**
 * Runs a transaction that locks a grant of the application. The token endpoint has no caller, so these transactions count as sessions
 * of the user who approved the grant: otherwise any number of refreshes would wait for its lock with a session each.
 */
export async function mutateGrant<T>(
  ctx: SystemCtx,
  app: App,
  which: SQL,
  work: (mutation: Mutation, locked: LockedGrant | undefined) => Promise<T>,
): Promise<T> {
  const ofApp = and(which, eq(oauthGrants.appId, app.id))
  const [found] = await ctx.db.select({ userId: oauthGrants.userId }).from(oauthGrants).where(ofApp)
  return withUserSession(found?.userId, () =>
    mutate(ctx, async (mutation) => work(mutation, await lockGrant(mutation, ofApp, ctx.now()))),
  )
}

async function lockGrant({ tx }: Mutation, which: SQL | undefined, now: Date): Promise<LockedGrant | undefined> {
  const isMember = sql<boolean>`exists (select from ${memberRoles}
    join ${users} u on u.id = ${memberRoles.userId} and u.disabled_at is null
    join ${organizations} o on o.id = ${memberRoles.organizationId} and o.disabled_at is null
    where ${memberRoles.organizationId} = ${oauthGrants.organizationId} and ${memberRoles.userId} = ${oauthGrants.userId})`
  const [row] = await tx
    .select({ grant: oauthGrants, revokedAt: accessTokens.revokedAt, endsAt: accessTokens.expiresAt, isMember })
    .from(oauthGrants)
    .innerJoin(accessTokens, eq(accessTokens.id, oauthGrants.approvedBy))
    .where(which)
    .for('update', { of: oauthGrants })
  if (!row) return undefined
  const { grant, revokedAt, endsAt } = row
  return {
    grant,
    approverEndsAt: endsAt,
    isValid: row.isMember && revokedAt === null && (endsAt === null || endsAt > now),
  }
}

interface NewAccessToken {
  app: App
  grant: Grant
  scopes: readonly Scope[]
  now: Date
  expiresAt: Date
}

/** Issues an access token that ends with its grant. */
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
  locked: LockedGrant
  scopes: readonly Scope[]
  now: Date
}

/** Issues an access token and the first refresh token. */
export async function issueTokens(mutation: Mutation, issue: Issue) {
  const family = `sbr_${randomHex()}`
  const changes = { codeUsedAt: issue.now, refreshFamilyHash: await hashToken(family) }
  return continueGrant(mutation, issue, { refreshToken: family + randomHex(), changes })
}

interface Continuation {
  /** Replaces the previous refresh token. */
  refreshToken?: string
  changes?: Partial<Grant>
}

/** Issues an access token and extends the grant, as it is in use. No token outlives the approving one. */
export async function continueGrant(
  { tx }: Mutation,
  { app, locked, scopes, now }: Issue,
  { refreshToken, changes }: Continuation = {},
) {
  const { grant, approverEndsAt } = locked
  const hash = refreshToken !== undefined && { refreshHash: await hashToken(refreshToken) }
  const until = (ms: number) =>
    new Date(Math.min(now.getTime() + ms, approverEndsAt?.getTime() ?? Number.POSITIVE_INFINITY))
  const issued = await issueAccessToken({ tx }, { app, grant, scopes, now, expiresAt: until(ACCESS_MS) })
  await tx
    .update(oauthGrants)
    .set({ ...changes, ...hash, expiresAt: until(REFRESH_MS) })
    .where(eq(oauthGrants.id, grant.id))
  return { ...issued, project_refs: null, ...(refreshToken !== undefined && { refresh_token: refreshToken }) }
}

/** Ends grants with all their tokens. `reason` is for the audit log. */
export async function endGrants({ tx, trace }: Mutation, grant: Grant, which: SQL, reason: string): Promise<void> {
  await tx.delete(oauthGrants).where(which)
  const { appId, userId, organizationId } = grant
  const actor = { actorUserId: userId, actorAppId: appId }
  await trace({ action: 'oauth_app.revoke', organizationId, detail: { app: appId, user: userId, reason } }, actor)
}

import { and, eq, gt, isNull, or, sql } from 'drizzle-orm'
import type { Caller } from '../actor.ts'
import type { SystemCtx } from '../ctx.ts'
import { SCOPES } from '../model/scopes.ts'
import { accessTokens, users } from '../model/tables/index.ts'
import { prepared } from '../platform/db/client.ts'
import { hashToken, isAccessToken } from './token.ts'

/** So long may a revoked token still work in an isolate that saw it. */
const KEPT_MS = 10_000
const KEPT_MAX = 10_000
/** By the token itself, as a digest for each request would cost more than the look-up. Never stored, never logged. */
const kept = new Map<string, { caller: Caller; until: number }>()

/**
 * The caller behind an Authorization header; undefined for none, a malformed, unknown, expired or revoked token,
 * and for one not known from before where `mayLookUp` says no.
 */
export async function authenticate(
  ctx: SystemCtx,
  header: string | undefined,
  mayLookUp: (now: number) => boolean,
): Promise<Caller | undefined> {
  const token = accessTokenIn(header)
  if (!token) return undefined
  const now = ctx.now().getTime()
  const cached = kept.get(token)
  if (cached && now < cached.until && now > cached.until - KEPT_MS - 1) return cached.caller
  // One that was good a while ago is no guess: whoever guesses at the same address does not shut it out.
  if (!cached && !mayLookUp(now)) return undefined
  const actor = await findPrincipal(ctx, token)
  if (!actor) {
    kept.delete(token)
    return undefined
  }
  if (kept.size >= KEPT_MAX) kept.clear()
  kept.set(token, { caller: actor, until: Math.min(now + KEPT_MS, actor.expiresAt ?? Number.POSITIVE_INFINITY) })
  return actor
}

/** The access token in an Authorization header; undefined for anything that cannot be one. */
export function accessTokenIn(header: string | undefined): string | undefined {
  const token = /^Bearer +(\S+)$/i.exec(header ?? '')?.[1]
  return token && isAccessToken(token) ? token : undefined
}

const tokenByHash = prepared((db) =>
  db
    .select({
      token: accessTokens,
      username: users.username,
      primaryEmail: users.primaryEmail,
      disabledAt: users.disabledAt,
    })
    .from(accessTokens)
    .innerJoin(users, eq(users.id, accessTokens.userId))
    .where(
      and(
        eq(accessTokens.hash, sql.placeholder('hash')),
        isNull(accessTokens.revokedAt),
        or(isNull(accessTokens.expiresAt), gt(accessTokens.expiresAt, sql.placeholder('now'))),
      ),
    )
    .prepare('token_by_hash'),
)

async function findPrincipal({ db, now }: SystemCtx, sent: string): Promise<Caller | undefined> {
  const [row] = await tokenByHash(db).execute({ hash: await hashToken(sent), now: now() })
  if (!row) return undefined
  const { token, username, primaryEmail, disabledAt } = row
  return {
    tokenId: token.id,
    token: sent,
    userId: token.userId,
    username,
    primaryEmail,
    isDisabled: disabledAt !== null,
    scopes: token.scopes ?? SCOPES,
    ...(token.oauthAppId ? { kind: 'oauthApp', appId: token.oauthAppId } : { kind: 'user' }),
    ...(token.organizationId && { organizationId: token.organizationId }),
    ...(token.expiresAt && { expiresAt: token.expiresAt.getTime() }),
  }
}

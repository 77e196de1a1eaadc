import { and, eq, gt, isNull, or, sql } from 'drizzle-orm'
import type { Caller } from '../actor.ts'
import type { SystemCtx } from '../ctx.ts'
import { SCOPES } from '../model/scopes.ts'
import { accessTokens, oauthApps, organizations, users } from '../model/tables/index.ts'
import { BoundedMap } from '../platform/bounded-map.ts'
import { prepareOnce } from '../platform/db/client.ts'
import { hashToken, isAccessToken } from './token.ts'

/** Time for which a revoked token may still work in an isolate that has seen it. */
const CACHE_MS = 10_000
const CACHE_ENTRIES_MAX = 10_000
/** Callers by their token. The key is not a digest, as computing one for each request would cost more than the lookup. */
const cache = new BoundedMap<string, { caller: Caller; until: number }>(CACHE_ENTRIES_MAX)

/**
 * Returns the caller of an Authorization header; undefined if the token is missing, malformed, unknown, expired or revoked, if
 * the publisher of its application is disabled, or if it is not cached and `mayLookUp` returns false.
 */
export async function authenticate(
  ctx: SystemCtx,
  header: string | undefined,
  mayLookUp: (now: number) => boolean,
): Promise<Caller | undefined> {
  const token = accessTokenIn(header)
  if (!token) return undefined
  const now = ctx.now().getTime()
  const cached = cache.get(token)
  if (cached && now < cached.until && now > cached.until - CACHE_MS - 1) return cached.caller
  // A token that was valid a moment ago is not a guess, so guesses from the same address must not lock it out.
  if (!cached && !mayLookUp(now)) return undefined
  const caller = await findCaller(ctx, token)
  if (!caller) {
    cache.delete(token)
    return undefined
  }
  cache.set(token, { caller, until: Math.min(now + CACHE_MS, caller.expiresAt ?? Number.POSITIVE_INFINITY) })
  return caller
}

/** Returns the access token of an Authorization header; undefined if it does not have the form of one. */
export function accessTokenIn(header: string | undefined): string | undefined {
  const token = /^Bearer +(\S+)$/i.exec(header ?? '')?.[1]
  return token && isAccessToken(token) ? token : undefined
}

const tokenByHash = prepareOnce((db) =>
  db
    .select({
      token: accessTokens,
      username: users.username,
      primaryEmail: users.primaryEmail,
      disabledAt: users.disabledAt,
    })
    .from(accessTokens)
    .innerJoin(users, eq(users.id, accessTokens.userId))
    .leftJoin(oauthApps, eq(oauthApps.id, accessTokens.oauthAppId))
    .leftJoin(organizations, eq(organizations.id, oauthApps.organizationId))
    .where(
      and(
        eq(accessTokens.hash, sql.placeholder('hash')),
        isNull(accessTokens.revokedAt),
        isNull(organizations.disabledAt),
        or(isNull(accessTokens.expiresAt), gt(accessTokens.expiresAt, sql.placeholder('now'))),
      ),
    )
    .prepare('token_by_hash'),
)

async function findCaller({ db, now }: SystemCtx, sent: string): Promise<Caller | undefined> {
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

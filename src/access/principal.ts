import { and, eq, gt, isNull, or, sql } from 'drizzle-orm'
import type { SystemCtx } from '../env.ts'
import { SCOPES, type Scope } from '../model/scopes.ts'
import { accessTokens, users } from '../model/tables/index.ts'
import { prepared } from '../platform/db/client.ts'
import { hashToken, isAccessToken } from './token.ts'

/** Who calls: a user by a personal token, or an application on a user's behalf with the scopes he approved. */
export interface Principal {
  tokenId: string
  /** As it was sent. Never stored, never logged. */
  token: string
  userId: string
  username: string
  primaryEmail: string
  /** By the operator; then no route but the public ones serves the caller. */
  isDisabled: boolean
  /** The OAuth application, absent for a personal token. */
  appId?: string
  scopes: readonly Scope[]
  /** Set where the token reaches one organization alone. */
  organizationId?: string
  /** Epoch milliseconds; a token must not outlive it in the cache. */
  expiresAt?: number
}

/** So long may a revoked token still work in an isolate that saw it. */
const KEPT_MS = 10_000
const KEPT_MAX = 10_000
/** By the token itself, as a digest for each request would cost more than the look-up. Never stored, never logged. */
const kept = new Map<string, { principal: Principal; until: number }>()

/**
 * The caller behind an Authorization header; undefined for none, a malformed, unknown, expired or revoked token,
 * and for one not known from before where `mayLookUp` says no.
 */
export async function authenticate(
  ctx: SystemCtx,
  header: string | undefined,
  mayLookUp: (now: number) => boolean,
): Promise<Principal | undefined> {
  const token = accessTokenIn(header)
  if (!token) return undefined
  const now = ctx.now().getTime()
  const cached = kept.get(token)
  if (cached && now < cached.until && now > cached.until - KEPT_MS - 1) return cached.principal
  // One that was good a while ago is no guess: whoever guesses at the same address does not shut it out.
  if (!cached && !mayLookUp(now)) return undefined
  const principal = await findPrincipal(ctx, token)
  if (!principal) {
    kept.delete(token)
    return undefined
  }
  if (kept.size >= KEPT_MAX) kept.clear()
  kept.set(token, { principal, until: Math.min(now + KEPT_MS, principal.expiresAt ?? Number.POSITIVE_INFINITY) })
  return principal
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

async function findPrincipal({ db, now }: SystemCtx, sent: string): Promise<Principal | undefined> {
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
    ...(token.oauthAppId && { appId: token.oauthAppId }),
    ...(token.organizationId && { organizationId: token.organizationId }),
    ...(token.expiresAt && { expiresAt: token.expiresAt.getTime() }),
  }
}

import { and, eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { assertionIssuers } from '../../../model/tables/index.ts'
import { readJwks } from '../../service-config/third-party-auth/jwks.ts'
import { type Resolved, resolveKeys } from '../../service-config/third-party-auth/resolve-keys.ts'

export type IssuerRow = typeof assertionIssuers.$inferSelect

const MINUTE_MS = 60_000
/** Keys are used for this time before they are fetched again. */
const FRESH_MS = 30 * MINUTE_MS
/** An issuer is asked at most this often, whether it answers or not, also for a key that is not known. */
const RETRY_MS = MINUTE_MS
/** Keys that can no longer be fetched are trusted for this time: they may have been withdrawn. */
const TRUSTED_MS = 24 * 60 * MINUTE_MS

interface Source {
  issuer: string
  jwksUrl: string | null
  /** Given in place of an address. */
  jwks?: unknown
}

/** Throws Unusable where the source leads to no keys; for one that is trusted already, to have none is an answer. */
export async function findKeys(
  ctx: SystemCtx,
  { issuer, jwksUrl, jwks }: Source,
  options: { mayBeEmpty?: boolean } = {},
): Promise<Resolved> {
  if (jwks !== undefined) return { issuer, jwks: await readJwks(jwks, { passesOver: false }) }
  return resolveKeys(ctx, { oidcIssuerUrl: jwksUrl === null ? issuer : null, jwksUrl }, options)
}

/** The keys to verify an assertion with, fetched anew where they are old or do not hold the one that it names. */
export async function currentKeys(ctx: SystemCtx, row: IssuerRow, kid: unknown): Promise<IssuerRow['jwks']['keys']> {
  const { jwks, fetchedAt, triedAt } = row
  if (fetchedAt === null) return jwks.keys
  const now = ctx.now().getTime()
  const ageMs = now - fetchedAt.getTime()
  const isKnown = kid === undefined || jwks.keys.some((key) => key.kid === kid)
  const isFresh = ageMs < FRESH_MS && isKnown
  if (!isFresh && now - (triedAt ?? fetchedAt).getTime() >= RETRY_MS) {
    const fetched = await fetchAgain(ctx, row)
    if (fetched) return fetched.keys
  }
  return ageMs < TRUSTED_MS ? jwks.keys : []
}

async function fetchAgain(ctx: SystemCtx, row: IssuerRow): Promise<IssuerRow['jwks'] | undefined> {
  const { organizationId, updatedAt } = row
  const triedAt = ctx.now()
  const source = { issuer: row.issuer, jwksUrl: row.jwksUrl }
  const found = await findKeys(ctx, source, { mayBeEmpty: true }).catch((error) => {
    ctx.log.info('issuer_keys_kept', { organization: organizationId, reason: String(error) })
    return undefined
  })
  // The issuer may have been replaced meanwhile.
  await ctx.db
    .update(assertionIssuers)
    .set(found ? { jwks: found.jwks, fetchedAt: triedAt, triedAt } : { triedAt })
    .where(and(eq(assertionIssuers.organizationId, organizationId), eq(assertionIssuers.updatedAt, updatedAt)))
  return found?.jwks
}

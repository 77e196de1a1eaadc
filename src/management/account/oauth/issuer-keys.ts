import { and, eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { assertionIssuers } from '../../../model/tables/index.ts'
import { readJwks } from '../../service-config/third-party-auth/jwks.ts'
import { type Resolved, resolveKeys } from '../../service-config/third-party-auth/resolve-keys.ts'

export type IssuerRow = typeof assertionIssuers.$inferSelect

const MINUTE_MS = 60_000
/** Age at which keys are fetched again. */
const FRESH_MS = 30 * MINUTE_MS
/** Minimum time between two fetches, also after a failure and for an unknown key. */
const RETRY_MS = MINUTE_MS
/** Age up to which keys are trusted if they cannot be fetched. Older ones may have been revoked. */
const TRUSTED_MS = 24 * 60 * MINUTE_MS

interface Source {
  issuer: string
  jwksUrl: string | null
  /** Keys given directly instead of a URL. */
  jwks?: unknown
}

/** Finds the keys of an issuer. Throws UnusableValue if there are none, unless `allowEmpty`: a trusted issuer may revoke all. */
export async function findKeys(
  ctx: SystemCtx,
  { issuer, jwksUrl, jwks }: Source,
  options: { allowEmpty?: boolean } = {},
): Promise<Resolved> {
  if (jwks !== undefined) return { issuer, jwks: await readJwks(jwks, { ignoresOtherKeys: false }) }
  return resolveKeys(ctx, { oidcIssuerUrl: jwksUrl === null ? issuer : null, jwksUrl }, options)
}

/** Returns the keys for an assertion. Fetches them if they are old or lack the key that the assertion names. */
export async function currentKeys(ctx: SystemCtx, row: IssuerRow, kid: unknown): Promise<IssuerRow['jwks']['keys']> {
  const { jwks, fetchedAt, triedAt } = row
  if (fetchedAt === null) return jwks.keys
  const now = ctx.now().getTime()
  const ageMs = now - fetchedAt.getTime()
  const isKnown = kid === undefined || jwks.keys.some((key) => key.kid === kid)
  const isFresh = ageMs < FRESH_MS && isKnown
  if (!isFresh && now - (triedAt ?? fetchedAt).getTime() >= RETRY_MS) {
    const fetched = await refetchKeys(ctx, row)
    if (fetched) return fetched.keys
  }
  return ageMs < TRUSTED_MS ? jwks.keys : []
}

async function refetchKeys(ctx: SystemCtx, row: IssuerRow): Promise<IssuerRow['jwks'] | undefined> {
  const { organizationId, updatedAt } = row
  const triedAt = ctx.now()
  const source = { issuer: row.issuer, jwksUrl: row.jwksUrl }
  const found = await findKeys(ctx, source, { allowEmpty: true }).catch((error) => {
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

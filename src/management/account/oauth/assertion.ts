import * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { Text } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { isAlgorithm, isSignedByOne, type Jwk, type VerificationKey } from '../../../platform/jwt/jwk.ts'
import { type Jws, readJws } from '../../../platform/jwt/jws.ts'
import type { App } from './oauth-client.ts'
import { isOwnResource } from './resource.ts'

/** Maximum lifetime of an assertion. Clients use assertions at once, and the id of a used one is stored until it expires. */
const LIFETIME_SECONDS_MAX = 600
/** Tolerated clock difference of an issuer. */
const SKEW_SECONDS = 60
/** Maximum number of an issuer's keys to try. */
const KEYS_TRIED_MAX = 10

const ClaimText = Text.min(1).max(1_024)
/** A string or a list of one (RFC 7519, 4.1.3). With several audiences, another server could replay the assertion here. */
const SingleText = z.union([ClaimText, z.tuple([ClaimText]).transform(([only]) => only)])
const TextList = z.union([ClaimText.transform((only) => [only]), z.array(ClaimText)])
const Seconds = z.number().int()

/** Identity Assertion JWT Authorization Grant (draft-ietf-oauth-identity-assertion-authz-grant), 3.1. */
const Claims = z.object({
  iss: ClaimText,
  sub: ClaimText,
  aud: SingleText,
  client_id: ClaimText,
  jti: ClaimText,
  exp: Seconds,
  iat: Seconds,
  nbf: Seconds.optional(),
  email: ClaimText.optional(),
  email_verified: z.boolean().optional(),
  aud_tenant: ClaimText.optional(),
  resource: TextList.optional(),
  scope: z.string().optional(),
})

export interface Assertion {
  claims: z.output<typeof Claims>
  /** The user: an e-mail address or a user id of this installation. */
  user: string
  expiresAt: Date
  kid: unknown
  isSignedBy(keys: readonly Jwk[]): Promise<boolean>
}

export const invalidGrant = (detail: string) => new ApiError('oauth.invalid_grant', { detail })

/** Checks everything that needs no key; `isSignedBy` checks the signature. */
export function readAssertion(ctx: SystemCtx, app: App, text: string): Assertion {
  const jws = readJws(text)
  if (!jws?.header) throw invalidGrant('the assertion is not a JWT')
  const { typ, kid } = jws.header
  if (typ !== 'oauth-id-jag+jwt') throw invalidGrant('the header typ of the assertion must be oauth-id-jag+jwt')
  if ('crit' in jws.header) throw invalidGrant('the header crit of the assertion is not allowed')
  const { data: claims, error } = Claims.safeParse(jws.claims)
  const [issue] = error?.issues ?? []
  if (!claims) throw invalidGrant(`the claim ${issue?.path.join('.') || 'set'} of the assertion is missing or invalid`)
  requireAudience(ctx, app, claims)
  requireTimes(ctx, claims)
  if (claims.email !== undefined && claims.email_verified === false)
    throw invalidGrant('the e-mail address of the assertion is not verified')
  return {
    claims,
    user: claims.email ?? claims.sub,
    expiresAt: new Date(claims.exp * 1000),
    kid,
    isSignedBy: (keys) => isSignedByOne(matchingKeys(keys, jws), jws.signature, jws.signed),
  }
}

function requireAudience(ctx: SystemCtx, app: App, { aud, client_id, resource }: Assertion['claims']): void {
  const { BASE_URL: issuer } = ctx.config
  if (aud !== issuer && aud !== `${issuer}/v1/oauth/token`)
    throw invalidGrant(`the claim aud of the assertion must be ${issuer}`)
  if (client_id.toLowerCase() !== app.id)
    throw invalidGrant('the claim client_id of the assertion names another application')
  if (resource?.some((uri) => !isOwnResource(ctx, uri))) throw new ApiError('oauth.invalid_target')
}

function requireTimes(ctx: SystemCtx, { exp, iat, nbf = iat }: Assertion['claims']): void {
  const now = ctx.now().getTime() / 1000
  if (exp <= now) throw invalidGrant('the assertion has expired')
  if (Math.max(iat, nbf) > now + SKEW_SECONDS)
    throw invalidGrant('the claim iat or nbf of the assertion lies in the future')
  if (exp - iat > LIFETIME_SECONDS_MAX)
    throw invalidGrant(`the claim exp of the assertion must lie at most ${LIFETIME_SECONDS_MAX} s after iat`)
}

/** Selects keys for the assertion. The key determines the algorithm, never the assertion. */
const matchingKeys = (keys: readonly Jwk[], { header }: Jws): VerificationKey[] =>
  keys
    .flatMap((jwk) => (isAlgorithm(jwk.alg) ? [{ algorithm: jwk.alg, kid: jwk.kid, jwk }] : []))
    .filter(({ algorithm, kid }) => algorithm === header?.alg && (header?.kid === undefined || header.kid === kid))
    .slice(0, KEYS_TRIED_MAX)

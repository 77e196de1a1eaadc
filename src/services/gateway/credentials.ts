import { createHmac } from 'node:crypto'
import { API_ROLES } from '../../engine/roles.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { type Claims, type Credential, InvalidCredential } from '../../platform/jwt/credential.ts'
import { type Algorithm, isAlgorithm, isSignedByOne, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { type Jws, readJws } from '../../platform/jwt/jws.ts'
import { credentialOfApiKey, isApiKey } from './api-key.ts'
import type { Trust } from './trust.ts'

/** Verifies an API key or a JWT for a project's own services; throws InvalidCredential. */
export async function verifyCredential(
  trust: Trust,
  token: string,
  now: Date,
  clockSkewSeconds?: number,
): Promise<Credential> {
  if (isApiKey(token)) return credentialOfApiKey(trust, token)
  const claims = await verifyUser(trust, token, now, clockSkewSeconds)
  const { role = 'anon', sub } = claims
  if (typeof role !== 'string' || RESERVED_ROLE.test(role)) throw new InvalidCredential(INVALID_ROLE)
  return { role, claims, ...(typeof sub === 'string' && { userId: sub }) }
}

/** Roles that no token may claim: those of the platform and of the owner, and `none`, which Postgres reads as the login role. */
const RESERVED_ROLE = /^(|none|postgres|authenticator|dashboard_user|(pg|supabase|pilothouse)_.*)$/
export const INVALID_ROLE = `"role" claim must be one of ${API_ROLES.join(', ')}, or a NOLOGIN role that is granted to authenticator`

/** Verifies a caller of a function or worker. The `role` claim is not checked: programs read it, and use no database role. */
export async function verifyCaller(trust: Trust, token: string, now: Date): Promise<void> {
  if (isApiKey(token)) await credentialOfApiKey(trust, token)
  else await verifyUser(trust, token, now)
}

async function verifyUser(trust: Trust, token: string, now: Date, clockSkewSeconds?: number): Promise<Claims> {
  const claims = await verifyClaims(trust, token, now, { clockSkewSeconds })
  if (isUrlToken(claims)) throw new InvalidCredential('the token of a signed URL is valid for that URL only')
  return claims
}

/** Whether the token is that of a signed URL, which the JWT secret can sign too. It must give no other access, not even as `anon`. */
const isUrlToken = ({ url, role }: Claims): boolean => typeof url === 'string' && role === undefined

interface Times {
  clockSkewSeconds?: number
  /** The time at which the token must not have expired: now, unless it is used for something that began earlier. */
  validAt?: Date
}

/** Verifies the signature, `exp` and `nbf` of a JWT and returns its claims; throws InvalidCredential. */
export async function verifyClaims(
  trust: Trust,
  token: string,
  now: Date,
  { clockSkewSeconds = 0, validAt = now }: Times = {},
): Promise<Claims> {
  const claims = await signedClaims(trust, token)
  const { exp, nbf } = claims
  requireTime('exp', exp, (at) => at > secondsOf(validAt) - clockSkewSeconds)
  requireTime('nbf', nbf, (at) => at <= secondsOf(now) + clockSkewSeconds)
  return claims
}

const VERIFIED_MAX = 1_000
/** Longer tokens are not cached, so that the cache takes a few megabytes at most. */
const VERIFIED_LENGTH_MAX = 4_096
/** Claims whose signature was verified, by trust id and token. `exp` and `nbf` are checked at each use. */
const verified = new BoundedMap<string, Claims>(VERIFIED_MAX)

async function signedClaims(trust: Trust, token: string): Promise<Claims> {
  const key = `${trust.id} ${token}`
  const known = verified.get(key)
  if (known) return known
  const claims = await readClaims(trust, token)
  if (token.length > VERIFIED_LENGTH_MAX) return claims
  verified.set(key, claims)
  return claims
}

async function readClaims(trust: Trust, token: string): Promise<Claims> {
  const jws = readJws(token)
  if (!jws) throw new InvalidCredential('Invalid Compact JWS')
  const { claims, signature, signed } = jws
  const keys = candidateKeys(trust, headerOf(jws), claims)
  if (keys.length === 0) throw new InvalidCredential('no applicable key found in the JSON Web Key Set')
  if (!(await isSignedByOne(keys, signature, signed))) throw new InvalidCredential('signature verification failed')
  if (!claims) throw new InvalidCredential('JWT Claims Set must be a top-level JSON object')
  if (!trust.acceptsLegacyApiKeys && isLegacyApiKey(trust, claims)) {
    throw new InvalidCredential('Legacy API keys are disabled')
  }
  return claims
}

interface Header {
  alg: Algorithm
  kid: unknown
}

function headerOf({ header }: Jws): Header {
  if (!header) throw new InvalidCredential('JWS Protected Header is invalid')
  const { alg, kid } = header
  if (!isAlgorithm(alg)) throw new InvalidCredential('"alg" (Algorithm) Header Parameter value not allowed')
  if ('crit' in header) throw new InvalidCredential('"crit" (Critical) Header Parameter value not allowed')
  return { alg, kid }
}

/** The keys that may have signed the token. A key is used only with its own algorithm, never with another that the token names. */
function candidateKeys(trust: Trust, header: Header, claims: Claims | undefined): readonly VerificationKey[] {
  const { alg, kid } = header
  const issuers = trust.issuers.filter(({ issuer }) => issuer !== null && issuer === claims?.iss)
  if (issuers.length > 0) return matchingKeys(issuers, header)
  const own = typeof kid === 'string' ? trust.keys.get(kid.toLowerCase()) : undefined
  if (own) return own.algorithm === alg ? [own] : []
  // A token signed with the JWT secret may have any `kid`, as was true before projects had other keys.
  if (alg === 'HS256') return trust.legacy ? [trust.legacy] : []
  return matchingKeys(
    trust.issuers.filter(({ issuer }) => issuer === null),
    header,
  )
}

/** Bounds how many signatures are checked for one token, however large the key sets are. */
const CANDIDATES_MAX = 10

/** Returns a list, because several issuers may publish the same key, or different keys under the same `kid`. */
const matchingKeys = (issuers: Trust['issuers'], { alg, kid }: Header): VerificationKey[] =>
  issuers
    .flatMap(({ keys }) => keys)
    .filter((key) => key.algorithm === alg && key.kid === kid)
    .slice(0, CANDIDATES_MAX)

/** Compares claims, not tokens: a signature has more than one base64url spelling. */
const isLegacyApiKey = (trust: Trust, { iss, ref, role }: Claims): boolean =>
  iss === LEGACY_ISSUER && ref === trust.ref && (role === 'anon' || role === 'service_role')

/** Checks an optional claim that is a time, in seconds since 1970. */
export function requireTime(name: string, claim: unknown, isValid: (at: number) => boolean): void {
  if (claim === undefined) return
  if (typeof claim !== 'number') throw new InvalidCredential(`"${name}" claim must be a number`)
  if (!isValid(claim)) throw new InvalidCredential(`"${name}" claim timestamp check failed`)
}

interface Signer {
  jwtSecret: string
  kid?: string
}

export function signClaims({ jwtSecret, kid }: Signer, claims: Claims, expiresInSeconds: number, now: Date): string {
  const iat = secondsOf(now)
  const parts = [
    { alg: 'HS256', typ: 'JWT', kid },
    { ...claims, iat, exp: iat + expiresInSeconds },
  ]
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
  return `${signed}.${createHmac('sha256', jwtSecret).update(signed).digest('base64url')}`
}

const LEGACY_ISSUER = 'supabase'
const LEGACY_KEY_LIFETIME_SECONDS = 10 * 365.25 * 24 * 60 * 60

/** The anon and service_role JWTs. They are derived from the ref, creation time and JWT secret of the project, so they need not be stored. */
export function legacyKeys({ ref, createdAt, jwtSecret }: Signer & { ref: string; createdAt: Date }) {
  const keyFor = (role: string) =>
    signClaims({ jwtSecret }, { iss: LEGACY_ISSUER, ref, role }, LEGACY_KEY_LIFETIME_SECONDS, createdAt)
  return { anon: keyFor('anon'), service_role: keyFor('service_role') }
}

const secondsOf = (time: Date): number => Math.floor(time.getTime() / 1000)

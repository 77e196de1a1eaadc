import { API_ROLES } from '../../engine/roles.ts'
import { type Claims, type Credential, InvalidCredential } from '../../platform/jwt/credential.ts'
import { type Algorithm, isAlgorithm, isSignedByOne, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { type Jws, readJws } from '../../platform/jwt/jws.ts'
import { base64Url } from '../../platform/secrets/base64url.ts'
import { credentialOfApiKey, isApiKey } from './api-key.ts'
import type { Trust } from './trust.ts'

/** The one place that says which credentials hold for a project's own services; throws InvalidCredential. */
export async function verifyCredential(trust: Trust, token: string, now: Date): Promise<Credential> {
  if (isApiKey(token)) return credentialOfApiKey(trust, token)
  const claims = await verifyUser(trust, token, now)
  const { role = 'anon', sub } = claims
  if (typeof role !== 'string' || RESERVED_ROLE.test(role)) throw new InvalidCredential(ROLE_WANTED)
  return { role, claims, ...(typeof sub === 'string' && { userId: sub }) }
}

/** Postgres takes `none` for the role that is logged in, which no policy binds; the others are the platform's and the owner. */
const RESERVED_ROLE = /^(|none|postgres|authenticator|dashboard_user|(pg|supabase|pilothouse)_.*)$/
export const ROLE_WANTED = `"role" claim must be one of ${API_ROLES.join(', ')}, or a role without login that is granted to authenticator`

/** For a program of the project, which takes on no role of the database: what a token says of its role is the program's to read. */
export async function verifyCaller(trust: Trust, token: string, now: Date): Promise<void> {
  if (isApiKey(token)) await credentialOfApiKey(trust, token)
  else await verifyUser(trust, token, now)
}

async function verifyUser(trust: Trust, token: string, now: Date): Promise<Claims> {
  const claims = await verifyClaims(trust, token, now)
  if (isOfUrl(claims)) throw new InvalidCredential('the token opens the URL that it was signed for, and nothing else')
  return claims
}

/** Who holds the JWT secret may sign URLs with it too; whom one was given is not even anonymous elsewhere. */
const isOfUrl = ({ url, role }: Claims): boolean => typeof url === 'string' && role === undefined

/** What a token says that somebody signed whom the project trusts; throws InvalidCredential. */
export async function verifyClaims(trust: Trust, token: string, now: Date): Promise<Claims> {
  const claims = await signedClaims(trust, token)
  const { exp, nbf } = claims
  const seconds = secondsOf(now)
  requireTime('exp', exp, (at) => at > seconds)
  requireTime('nbf', nbf, (at) => at <= seconds)
  return claims
}

const GENUINE_MAX = 1_000
/** A longer one is checked each time, so that they take a few megabytes at most. */
const GENUINE_LENGTH_MAX = 4_096
/** By who is trusted and token; whether their time has come is asked each time. */
const genuine = new Map<string, Claims>()

async function signedClaims(trust: Trust, token: string): Promise<Claims> {
  const key = `${trust.id} ${token}`
  const known = genuine.get(key)
  if (known) return known
  const claims = await readClaims(trust, token)
  if (token.length > GENUINE_LENGTH_MAX) return claims
  if (genuine.size >= GENUINE_MAX) genuine.clear()
  genuine.set(key, claims)
  return claims
}

async function readClaims(trust: Trust, token: string): Promise<Claims> {
  const jws = readJws(token)
  if (!jws) throw new InvalidCredential('Invalid Compact JWS')
  const { claims, signature, signed } = jws
  const keys = keysFor(trust, headerOf(jws), claims)
  if (keys.length === 0) throw new InvalidCredential('no applicable key found in the JSON Web Key Set')
  const isGenuine = await isSignedByOne(keys, signature, signed)
  if (!isGenuine) throw new InvalidCredential('signature verification failed')
  if (!claims) throw new InvalidCredential('JWT Claims Set must be a top-level JSON object')
  if (!trust.takesLegacyApiKeys && isLegacyApiKey(trust, claims)) {
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

/** Those that may have signed the token; it is the key that says by which algorithm, and never the token. */
function keysFor(trust: Trust, header: Header, claims: Claims | undefined): readonly VerificationKey[] {
  const { alg, kid } = header
  const issuers = trust.issuers.filter(({ issuer }) => issuer !== null && issuer === claims?.iss)
  if (issuers.length > 0) return fitting(issuers, header)
  const own = typeof kid === 'string' ? trust.keys.get(kid.toLowerCase()) : undefined
  if (own) return own.algorithm === alg ? [own] : []
  // Who signs with the JWT secret may call it what he likes, as before there were other keys.
  if (alg === 'HS256') return trust.legacy ? [trust.legacy] : []
  return fitting(
    trust.issuers.filter(({ issuer }) => issuer === null),
    header,
  )
}

/** A token costs no more than so many signatures, whatever the sets hold. */
const FITTING_MAX = 10

/** Several integrations may know the same key, and different keys by the same name. */
const fitting = (issuers: Trust['issuers'], { alg, kid }: Header): VerificationKey[] =>
  issuers
    .flatMap(({ keys }) => keys)
    .filter((key) => key.algorithm === alg && key.kid === kid)
    .slice(0, FITTING_MAX)

/** By what it says: its signature can be spelled in more ways than one. */
const isLegacyApiKey = (trust: Trust, { iss, ref, role }: Claims): boolean =>
  iss === LEGACY_ISSUER && ref === trust.ref && (role === 'anon' || role === 'service_role')

function requireTime(name: string, claim: unknown, holds: (at: number) => boolean): void {
  if (claim === undefined) return
  if (typeof claim !== 'number') throw new InvalidCredential(`"${name}" claim must be a number`)
  if (!holds(claim)) throw new InvalidCredential(`"${name}" claim timestamp check failed`)
}

interface Signer {
  jwtSecret: string
  kid?: string
}

export async function signClaims(
  { jwtSecret, kid }: Signer,
  claims: Claims,
  expiresInSeconds: number,
  now: Date,
): Promise<string> {
  const iat = secondsOf(now)
  const header = kid === undefined ? HEADER : headerWith({ kid })
  const signed = `${header}.${base64Url(utf8(JSON.stringify({ ...claims, iat, exp: iat + expiresInSeconds })))}`
  return `${signed}.${base64Url(await crypto.subtle.sign('HMAC', await keyOf(jwtSecret), utf8(signed)))}`
}

const LEGACY_ISSUER = 'supabase'
const LEGACY_KEY_LIFETIME_SECONDS = 10 * 365.25 * 24 * 60 * 60

/** Made from what the project is, so that they stay the same and are stored nowhere. */
export async function legacyKeys({ ref, createdAt, jwtSecret }: Signer & { ref: string; createdAt: Date }) {
  const keyFor = (role: string) =>
    signClaims({ jwtSecret }, { iss: LEGACY_ISSUER, ref, role }, LEGACY_KEY_LIFETIME_SECONDS, createdAt)
  return { anon: await keyFor('anon'), service_role: await keyFor('service_role') }
}

const KEYS_MAX = 1_000
const keys = new Map<string, CryptoKey>()

async function keyOf(jwtSecret: string): Promise<CryptoKey> {
  const known = keys.get(jwtSecret)
  if (known) return known
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const key = await crypto.subtle.importKey('raw', utf8(jwtSecret), hmac, false, ['sign'])
  if (keys.size >= KEYS_MAX) keys.clear()
  keys.set(jwtSecret, key)
  return key
}

const secondsOf = (time: Date): number => Math.floor(time.getTime() / 1000)

const utf8 = (text: string): ArrayBuffer => new TextEncoder().encode(text).buffer as ArrayBuffer
const headerWith = (more: { kid?: string }) => base64Url(utf8(JSON.stringify({ alg: 'HS256', typ: 'JWT', ...more })))
const HEADER = headerWith({})

import { decodeBase64Url, encodeBase64Url } from 'hono/utils/encode'
import { API_ROLES } from '../engine/roles.ts'

export type Claims = Record<string, unknown>

/** Who calls a project's own services: the database role that decides, and what its policies may read. */
export interface Credential {
  role: string
  claims: Claims
  userId?: string
}

/** The message is what the caller is told, in the words that clients know. */
export class InvalidCredential extends Error {
  override name = 'InvalidCredential'
}

interface Signer {
  jwtSecret: string
}

/** The one place that says which credentials hold for a project's own services; throws InvalidCredential. */
export async function verifyCredential(project: Signer, token: string, now: Date): Promise<Credential> {
  if (/^sb_(publishable|secret)_/.test(token)) {
    throw new InvalidCredential('Keys of the form sb_… are not known here yet: use the anon or service_role key')
  }
  const claims = await verifyClaims(project, token, now)
  const { role = 'anon', sub } = claims
  // Postgres would take some other names, such as none, for the role that is logged in, which no policy binds.
  if (typeof role !== 'string' || !API_ROLES.includes(role)) {
    throw new InvalidCredential(`"role" claim must be one of ${API_ROLES.join(', ')}`)
  }
  return { role, claims, ...(typeof sub === 'string' && { userId: sub }) }
}

/** What a token says that was signed with the project's secret; throws InvalidCredential. */
export async function verifyClaims(project: Signer, token: string, now: Date): Promise<Claims> {
  const claims = await signedClaims(project, token)
  const { exp, nbf } = claims
  const seconds = secondsOf(now)
  requireTime('exp', exp, (at) => at > seconds)
  requireTime('nbf', nbf, (at) => at <= seconds)
  return claims
}

const GENUINE_MAX = 1_000
/** A longer one is checked each time, so that they take a few megabytes at most. */
const GENUINE_LENGTH_MAX = 4_096
/** By secret and token; whether their time has come is asked each time. */
const genuine = new Map<string, Claims>()

async function signedClaims({ jwtSecret }: Signer, token: string): Promise<Claims> {
  const key = `${jwtSecret} ${token}`
  const known = genuine.get(key)
  if (known) return known
  const claims = await readClaims(jwtSecret, token)
  if (token.length > GENUINE_LENGTH_MAX) return claims
  if (genuine.size >= GENUINE_MAX) genuine.clear()
  genuine.set(key, claims)
  return claims
}

async function readClaims(jwtSecret: string, token: string): Promise<Claims> {
  const [, head, payload, signature] = /^([\w-]+)\.([\w-]+)\.([\w-]*)$/.exec(token) ?? []
  if (head === undefined || payload === undefined || signature === undefined) {
    throw new InvalidCredential('Invalid Compact JWS')
  }
  const header = decodeObject(head)
  if (!header) throw new InvalidCredential('JWS Protected Header is invalid')
  if (header.alg !== 'HS256') throw new InvalidCredential('"alg" (Algorithm) Header Parameter value not allowed')
  if ('crit' in header) throw new InvalidCredential('"crit" (Critical) Header Parameter value not allowed')
  const isGenuine = await crypto.subtle.verify(
    'HMAC',
    await keyOf(jwtSecret),
    decode(signature) ?? new Uint8Array(),
    utf8(`${head}.${payload}`),
  )
  if (!isGenuine) throw new InvalidCredential('signature verification failed')
  const claims = decodeObject(payload)
  if (!claims) throw new InvalidCredential('JWT Claims Set must be a top-level JSON object')
  return claims
}

function requireTime(name: string, claim: unknown, holds: (at: number) => boolean): void {
  if (claim === undefined) return
  if (typeof claim !== 'number') throw new InvalidCredential(`"${name}" claim must be a number`)
  if (!holds(claim)) throw new InvalidCredential(`"${name}" claim timestamp check failed`)
}

export async function signClaims(
  { jwtSecret }: Signer,
  claims: Claims,
  expiresInSeconds: number,
  now: Date,
): Promise<string> {
  const iat = secondsOf(now)
  const signed = `${HEADER}.${encode(utf8(JSON.stringify({ ...claims, iat, exp: iat + expiresInSeconds })))}`
  return `${signed}.${encode(await crypto.subtle.sign('HMAC', await keyOf(jwtSecret), utf8(signed)))}`
}

const LEGACY_KEY_LIFETIME_SECONDS = 10 * 365.25 * 24 * 60 * 60

/** Made from what the project is, so that they stay the same and are stored nowhere. */
export async function legacyKeys({ ref, createdAt, jwtSecret }: Signer & { ref: string; createdAt: Date }) {
  const keyFor = (role: string) =>
    signClaims({ jwtSecret }, { iss: 'supabase', ref, role }, LEGACY_KEY_LIFETIME_SECONDS, createdAt)
  return { anon: await keyFor('anon'), service_role: await keyFor('service_role') }
}

const KEYS_MAX = 1_000
const keys = new Map<string, CryptoKey>()

async function keyOf(jwtSecret: string): Promise<CryptoKey> {
  const known = keys.get(jwtSecret)
  if (known) return known
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const key = await crypto.subtle.importKey('raw', utf8(jwtSecret), hmac, false, ['sign', 'verify'])
  if (keys.size >= KEYS_MAX) keys.clear()
  keys.set(jwtSecret, key)
  return key
}

const secondsOf = (time: Date): number => Math.floor(time.getTime() / 1000)

const utf8 = (text: string): ArrayBuffer => new TextEncoder().encode(text).buffer as ArrayBuffer
const encode = (bytes: ArrayBuffer): string => encodeBase64Url(bytes).replace(/=+$/, '')
const HEADER = encode(utf8(JSON.stringify({ alg: 'HS256', typ: 'JWT' })))

function decode(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return decodeBase64Url(text)
  } catch {
    return undefined
  }
}

function decodeObject(text: string): Claims | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(decodeBase64Url(text)))
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Claims) : undefined
  } catch {
    return undefined
  }
}

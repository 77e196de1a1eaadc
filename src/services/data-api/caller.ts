import { type Claims, InvalidCredential } from '../../platform/jwt/credential.ts'
import { isApiKey } from '../gateway/api-key.ts'
import { requireTime, verifyCredential } from '../gateway/credentials.ts'
import type { Trust } from '../gateway/trust.ts'
import { DataApiError } from './data-api-error.ts'

/** Role and claims of a request, and the properties of the request that SQL can read. */
export interface Caller {
  role: string
  claims: Claims
  method: string
  /** The path after `/rest/v1`. */
  path: string
  /** JSON of the headers without those that carry credentials. */
  headers: string
  /** JSON of the cookies. */
  cookies: string
}

/** The headers of a request by their lowercase names. */
export type RequestHeaders = Readonly<Record<string, string>>

/** Reads all headers at once, because each call of `Headers` goes to native code. */
export const headersOf = ({ headers }: Request): RequestHeaders => Object.fromEntries(headers)

/** Verifies the credentials of a request. A user's token takes precedence over the API key that is sent with it. */
export async function authenticate(
  trust: Trust,
  { url, headers }: { url: string; headers: RequestHeaders },
  now: Date,
): Promise<Pick<Caller, 'role' | 'claims'>> {
  const apiKey = headers.apikey?.trim() || new URL(url).searchParams.get('apikey') || undefined
  const [, bearer] = /^bearer\s+(\S.*)$/i.exec(headers.authorization ?? '') ?? []
  const token = bearer?.trim() ?? apiKey
  if (token === undefined) {
    throw new DataApiError({
      ...{ status: 401, code: 'PGRST302', message: 'No API key found in request' },
      ...{ hint: 'No `apikey` request header or url param was found.', headers: { 'www-authenticate': 'Bearer' } },
    })
  }
  const credential = await verify(trust, token, now)
  if (apiKey !== undefined && apiKey !== token) await verify(trust, apiKey, now)
  return credential
}

/** As in PostgREST. */
const CLOCK_SKEW_SECONDS = 30

async function verify(trust: Trust, token: string, now: Date) {
  try {
    const credential = await verifyCredential(trust, token, now, CLOCK_SKEW_SECONDS)
    requireIssueTimeAndAudience(credential.claims, now)
    return credential
  } catch (error) {
    throw error instanceof InvalidCredential ? refusal(error.message, token) : error
  }
}

/** Checks the claims that PostgREST checks and other services do not. */
function requireIssueTimeAndAudience({ iat, aud }: Claims, now: Date): void {
  requireTime('iat', iat, (at) => at <= now.getTime() / 1000 + CLOCK_SKEW_SECONDS)
  const audiences = Array.isArray(aud) ? aud : [aud ?? '']
  if (!audiences.every((audience) => typeof audience === 'string')) throw new InvalidCredential(INVALID_AUDIENCE)
}

const INVALID_AUDIENCE = '"aud" claim must be a string or an array of strings'

/** The texts of PostgREST, which clients compare. */
const REFUSALS: Readonly<Record<string, readonly [code: string, message: string]>> = {
  '"exp" claim timestamp check failed': ['PGRST303', 'JWT expired'],
  '"nbf" claim timestamp check failed': ['PGRST303', 'JWT not yet valid'],
  '"iat" claim timestamp check failed': ['PGRST303', 'JWT issued at future'],
  '"exp" claim must be a number': ['PGRST303', "The JWT 'exp' claim must be a number"],
  '"nbf" claim must be a number': ['PGRST303', "The JWT 'nbf' claim must be a number"],
  '"iat" claim must be a number': ['PGRST303', "The JWT 'iat' claim must be a number"],
  [INVALID_AUDIENCE]: ['PGRST303', "The JWT 'aud' claim must be a string or an array of strings"],
  'Invalid Compact JWS': ['PGRST301', 'Expected 3 parts in JWT'],
}

function refusal(reason: string, token: string): DataApiError {
  const [code, message] = isApiKey(token)
    ? ['PGRST301', 'Invalid API key']
    : (REFUSALS[reason] ?? ['PGRST301', 'No suitable key or wrong key type'])
  const headers = { 'www-authenticate': `Bearer error="invalid_token", error_description="${message}"` }
  return new DataApiError({ status: 401, code, message, details: REFUSALS[reason] ? null : reason, headers })
}

export function describeRequest(
  method: string,
  path: string,
  { authorization: _token, apikey: _key, cookie = '', ...readable }: RequestHeaders,
): Omit<Caller, 'role' | 'claims'> {
  return { method, path, headers: JSON.stringify(readable), cookies: cookiesIn(cookie) }
}

function cookiesIn(text: string): string {
  const cookies = text.split(';').flatMap((pair) => {
    const at = pair.indexOf('=')
    return at < 0 ? [] : [[pair.slice(0, at).trim(), pair.slice(at + 1).trim()] as const]
  })
  return JSON.stringify(Object.fromEntries(cookies))
}

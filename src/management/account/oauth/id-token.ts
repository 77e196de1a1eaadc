import type { SystemCtx } from '../../../ctx.ts'
import { schemeOf } from '../../../platform/jwt/jwk.ts'
import { base64Url } from '../../../platform/secrets/base64url.ts'
import { SIGNING_ALGORITHM, type SigningKey } from './signing-key.ts'

interface IdToken {
  key: SigningKey
  appId: string
  userId: string
  nonce: string
  accessToken: string
  expiresInSeconds: number
}

/** Signs an ID token (OpenID Connect Core 1.0, 3.2.2.10) for this application and this request. */
export async function signIdToken(ctx: SystemCtx, token: IdToken): Promise<string> {
  const { key, appId, userId, nonce, accessToken, expiresInSeconds } = token
  const iat = Math.floor(ctx.now().getTime() / 1000)
  const claims = {
    iss: ctx.config.BASE_URL,
    sub: userId,
    aud: appId,
    iat,
    exp: iat + expiresInSeconds,
    nonce,
    at_hash: await accessTokenHash(accessToken),
  }
  const signed = `${encode({ alg: SIGNING_ALGORITHM, typ: 'JWT', kid: key.id })}.${encode(claims)}`
  const scheme = schemeOf(SIGNING_ALGORITHM)
  const privateKey = await crypto.subtle.importKey('jwk', key.privateJwk as JsonWebKey, scheme.key, false, ['sign'])
  return `${signed}.${base64Url(await crypto.subtle.sign(scheme.signature, privateKey, utf8(signed)))}`
}

/** Returns the left half of the hash of the access token, by which the client detects a substituted token. */
async function accessTokenHash(token: string): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', utf8(token))
  return base64Url(hash.slice(0, hash.byteLength / 2))
}

const utf8 = (text: string): ArrayBuffer => new TextEncoder().encode(text).buffer as ArrayBuffer
const encode = (part: object): string => base64Url(utf8(JSON.stringify(part)))

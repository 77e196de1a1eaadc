import { encodeBase64Url } from 'hono/utils/encode'
import { secretJwk, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { type Trust, trustIn } from './trust.ts'

/** Signs URLs that carry their own permission, by a key of their own: none that is revoked ends them, none that leaks makes them. */
export interface UrlSigner {
  jwtSecret: string
  kid: string
  trust: Trust
}

const KID = 'urls'
const signers = new WeakMap<Trust, UrlSigner>()

/** `secret` is the one secret of a project that is random, never changes and nobody is shown. */
export async function urlSignerOf(project: Trust, secret: string): Promise<UrlSigner> {
  const known = signers.get(project)
  if (known) return known
  const jwtSecret = await derive(secret, `urls of ${project.ref}`)
  const own: VerificationKey = { algorithm: 'HS256', kid: KID, jwk: secretJwk(jwtSecret) }
  // Who holds the JWT secret may make URLs himself, until it is revoked.
  const signer = { jwtSecret, kid: KID, trust: trustIn({ legacy: project.legacy, keys: new Map([[KID, own]]) }) }
  signers.set(project, signer)
  return signer
}

async function derive(secret: string, purpose: string): Promise<string> {
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const utf8 = new TextEncoder()
  const key = await crypto.subtle.importKey('raw', utf8.encode(secret), hmac, false, ['sign'])
  return encodeBase64Url(await crypto.subtle.sign('HMAC', key, utf8.encode(purpose)))
}

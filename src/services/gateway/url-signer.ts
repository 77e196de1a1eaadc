import { encodeBase64Url } from 'hono/utils/encode'
import { secretJwk, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { createTrust, type Trust } from './trust.ts'

/** The key that signs URLs and nothing else, so that its URLs stay valid when other keys are revoked. */
export interface UrlSigner {
  jwtSecret: string
  kid: string
  trust: Trust
}

const KID = 'urls'
const signers = new WeakMap<Trust, UrlSigner>()

/** `secret` must be random, never change and never be shown to anyone. */
export async function urlSignerOf(project: Trust, secret: string): Promise<UrlSigner> {
  const known = signers.get(project)
  if (known) return known
  const jwtSecret = await derive(secret, `urls of ${project.ref}`)
  const own: VerificationKey = { algorithm: 'HS256', kid: KID, jwk: secretJwk(jwtSecret) }
  // URLs that the JWT secret signed are accepted too, until it is revoked.
  const signer = { jwtSecret, kid: KID, trust: createTrust({ legacy: project.legacy, keys: new Map([[KID, own]]) }) }
  signers.set(project, signer)
  return signer
}

async function derive(secret: string, purpose: string): Promise<string> {
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const utf8 = new TextEncoder()
  const key = await crypto.subtle.importKey('raw', utf8.encode(secret), hmac, false, ['sign'])
  return encodeBase64Url(await crypto.subtle.sign('HMAC', key, utf8.encode(purpose)))
}

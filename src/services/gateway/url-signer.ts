import { createHmac } from 'node:crypto'
import { secretJwk, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { createTrust, type Trust } from './trust.ts'

/** The key that signs URLs and nothing else, so that its URLs stay valid when other keys are revoked. */
export interface UrlSigner {
  jwtSecret: string
  kid: string
  trust: Trust
}

const KID = 'urls'

/** `secret` must be random, never change and never be shown to anyone. */
export function urlSignerOf(project: Trust, secret: string): UrlSigner {
  const derived = createHmac('sha256', secret).update(`urls of ${project.ref}`).digest('base64url')
  // Keys of URLs have always had the padding of base64.
  const jwtSecret = `${derived}=`
  const own: VerificationKey = { algorithm: 'HS256', kid: KID, jwk: secretJwk(jwtSecret) }
  // URLs that the JWT secret signed are accepted too, until it is revoked.
  return { jwtSecret, kid: KID, trust: createTrust({ legacy: project.legacy, keys: new Map([[KID, own]]) }) }
}

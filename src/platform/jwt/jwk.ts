import { base64Url } from '../secrets/base64url.ts'

export const SIGNING_ALGORITHMS = ['EdDSA', 'ES256', 'RS256', 'HS256'] as const
export type Algorithm = (typeof SIGNING_ALGORITHMS)[number]

/** An unchecked JSON Web Key. It is validated when it is imported. */
export interface Jwk {
  kty?: string
  kid?: string
  alg?: string
  use?: string
  key_ops?: string[]
  ext?: boolean
  crv?: string
  x?: string
  y?: string
  n?: string
  e?: string
  k?: string
  d?: string
}

export interface VerificationKey {
  algorithm: Algorithm
  kid: string | undefined
  jwk: Jwk
  /** Set when the key is first used. */
  imported?: CryptoKey
}

interface Scheme {
  key: { name: string; hash?: string; namedCurve?: string }
  signature: { name: string; hash?: string }
  /** Members of the JWK that form the public key, or the secret. */
  members: readonly (keyof Jwk)[]
}

const SCHEMES: Record<Algorithm, Scheme> = {
  HS256: { key: { name: 'HMAC', hash: 'SHA-256' }, signature: { name: 'HMAC' }, members: ['kty', 'k'] },
  ES256: {
    key: { name: 'ECDSA', namedCurve: 'P-256' },
    signature: { name: 'ECDSA', hash: 'SHA-256' },
    members: ['kty', 'crv', 'x', 'y'],
  },
  RS256: {
    key: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
    signature: { name: 'RSASSA-PKCS1-v1_5' },
    members: ['kty', 'n', 'e'],
  },
  EdDSA: { key: { name: 'Ed25519' }, signature: { name: 'Ed25519' }, members: ['kty', 'crv', 'x'] },
}

export const schemeOf = (algorithm: Algorithm): Scheme => SCHEMES[algorithm]
export const isAlgorithm = (value: unknown): value is Algorithm => typeof value === 'string' && value in SCHEMES

export const RSA_BITS_MIN = 2_048

/** Returns the members of a key that are needed to verify. */
export const verifyingPart = (algorithm: Algorithm, jwk: Jwk): Jwk =>
  Object.fromEntries(SCHEMES[algorithm].members.map((member) => [member, jwk[member]]))

/** Whether the signature is valid for any of the keys. */
export async function isSignedByOne(
  keys: readonly VerificationKey[],
  signature: Uint8Array<ArrayBuffer>,
  signed: ArrayBuffer,
): Promise<boolean> {
  for (const key of keys) if (await isSignedBy(key, signature, signed)) return true
  return false
}

/** Whether the signature is valid for the key. False if the key cannot be imported. */
async function isSignedBy(
  key: VerificationKey,
  signature: Uint8Array<ArrayBuffer>,
  signed: ArrayBuffer,
): Promise<boolean> {
  try {
    key.imported ??= await importVerifying(key)
    return await crypto.subtle.verify(SCHEMES[key.algorithm].signature, key.imported, signature, signed)
  } catch {
    return false
  }
}

async function importVerifying({ algorithm, jwk }: VerificationKey): Promise<CryptoKey> {
  const part = verifyingPart(algorithm, jwk)
  const key = await crypto.subtle.importKey('jwk', part as JsonWebKey, SCHEMES[algorithm].key, false, ['verify'])
  const { modulusLength = RSA_BITS_MIN } = key.algorithm as { modulusLength?: number }
  if (modulusLength < RSA_BITS_MIN) throw new Error(`an RSA key must have at least ${RSA_BITS_MIN} bits`)
  return key
}

/** JWK of a JWT secret. The bytes of the text are the key, even if it looks like base64. */
export const secretJwk = (secret: string): Jwk => ({
  kty: 'oct',
  k: base64Url(new TextEncoder().encode(secret).buffer as ArrayBuffer),
})

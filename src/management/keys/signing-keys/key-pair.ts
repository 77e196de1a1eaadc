import { type Algorithm, type Jwk, RSA_BITS_MIN, schemeOf, verifyingPart } from '../../../platform/jwt/jwk.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import type { PrivateJwk } from './schema.ts'

export interface KeyPair {
  /** The `kid` of the JWK. */
  id: string
  privateJwk: Jwk
  /** Null if the key is symmetric. */
  publicJwk: Record<string, unknown> | null
}

export async function generateKeyPair(algorithm: Algorithm): Promise<KeyPair> {
  const { key } = schemeOf(algorithm)
  const rsa = { modulusLength: RSA_BITS_MIN, publicExponent: new Uint8Array([1, 0, 1]) }
  const parameters = algorithm === 'RS256' ? { ...key, ...rsa } : key
  const generated = (await crypto.subtle.generateKey(parameters, true, ['sign', 'verify'])) as CryptoKey | CryptoKeyPair
  const privateJwk = await crypto.subtle.exportKey('jwk', 'privateKey' in generated ? generated.privateKey : generated)
  return keyPairOf(algorithm, crypto.randomUUID(), privateJwk as Jwk)
}

/** Imports a key. Throws if it is invalid or its private and public parts do not match. */
export async function importKeyPair(algorithm: Algorithm, jwk: PrivateJwk): Promise<KeyPair> {
  const { kid = crypto.randomUUID(), use: _use, key_ops: _ops, ext: _ext, alg: _alg, ...privateJwk } = jwk
  const problem = await problemOf(algorithm, privateJwk)
  if (problem === undefined) return keyPairOf(algorithm, kid, privateJwk)
  throw invalidField('body.private_jwk', problem, 'invalid_key')
}

function keyPairOf(algorithm: Algorithm, id: string, { key_ops: _ops, ext: _ext, ...privateJwk }: Jwk): KeyPair {
  if (algorithm === 'HS256') return { id, privateJwk, publicJwk: null }
  const metadata = { kid: id, alg: algorithm, use: 'sig', key_ops: ['verify'], ext: true }
  return { id, privateJwk, publicJwk: { ...metadata, ...verifyingPart(algorithm, privateJwk) } }
}

async function problemOf(algorithm: Algorithm, jwk: Jwk): Promise<string | undefined> {
  const { key, signature } = schemeOf(algorithm)
  const load = (part: Jwk, use: 'sign' | 'verify') =>
    crypto.subtle.importKey('jwk', part as JsonWebKey, key, false, [use])
  try {
    const signing = await load(jwk, 'sign')
    const { modulusLength = RSA_BITS_MIN } = signing.algorithm as { modulusLength?: number }
    if (modulusLength < RSA_BITS_MIN) return `must be an RSA key of at least ${RSA_BITS_MIN} bits`
    const message = crypto.getRandomValues(new Uint8Array(32))
    const signed = await crypto.subtle.sign(signature, signing, message)
    const verifying = await load(verifyingPart(algorithm, jwk), 'verify')
    const matches = await crypto.subtle.verify(signature, verifying, signed, message)
    return matches ? undefined : 'the private part must match the public part'
  } catch {
    return 'must be a valid key of the algorithm'
  }
}

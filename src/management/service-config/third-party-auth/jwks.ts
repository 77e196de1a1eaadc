import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { UnusableValue } from '../../../platform/http/unusable-value.ts'
import { type Algorithm, type Jwk, RSA_BITS_MIN, schemeOf, verifyingPart } from '../../../platform/jwt/jwk.ts'
import { algorithmOf } from '../../../services/gateway/trust.ts'

const KEYS_MAX = 50
/** Of JSON, as it is kept: it is read with every opening of the project. */
export const KEY_SET_CHARACTERS_MAX = 32 * 1024
const RSA_BITS_MAX = 8_192
const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

const Jwks = z.object({ keys: z.array(z.record(z.string(), z.unknown())).max(KEYS_MAX) })
const Kid = Text.max(256).optional()

export interface KeySet {
  keys: Jwk[]
}
type Given = Record<string, unknown>

interface Options {
  /** Of a set that others use too, keys for other purposes are passed over; one that is given must be right. */
  passesOver: boolean
  /** Of a set that is trusted already, to be empty is an answer: its keys were withdrawn. */
  mayBeEmpty?: boolean
}

/** The public keys of a JWK set, each imported once and left with what verifying takes. */
export async function readJwks(value: unknown, { passesOver, mayBeEmpty = false }: Options): Promise<KeySet> {
  const set = Jwks.safeParse(value)
  if (!set.success || (set.data.keys.length === 0 && !mayBeEmpty))
    throw new UnusableValue(`is no JWK set: it must have "keys", with 1 to ${KEYS_MAX} keys`)
  for (const [index, key] of set.data.keys.entries()) refuseSecrets(key, index)
  const read = await Promise.all(set.data.keys.map((key, index) => readKey(key, index, passesOver)))
  const keys = read.filter((key) => key !== undefined)
  if (keys.length === 0 && !mayBeEmpty) throw new UnusableValue('has no key for signatures with RS256, ES256 or EdDSA')
  if (JSON.stringify({ keys }).length > KEY_SET_CHARACTERS_MAX) {
    throw new UnusableValue(`has keys of more than ${KEY_SET_CHARACTERS_MAX} characters of JSON together`)
  }
  return { keys }
}

/** Whoever publishes these has lost them, and with a symmetric key whoever verifies could sign. */
function refuseSecrets(key: Given, index: number): void {
  if (key.kty === 'oct') throw new UnusableValue(`has a symmetric key: keys.${index}`)
  const member = PRIVATE_MEMBERS.find((name) => name in key)
  if (member !== undefined) throw new UnusableValue(`has a private key: keys.${index}.${member}`)
}

async function readKey(key: Given, index: number, passesOver: boolean): Promise<Jwk | undefined> {
  try {
    return await publicKey(key)
  } catch (cause) {
    if (passesOver) return undefined
    const reason = cause instanceof UnusableValue ? cause.message : 'cannot be read'
    throw new UnusableValue(`has a key that ${reason}: keys.${index}`, { cause })
  }
}

/** Another name of an algorithm. */
const ALIASES: Record<string, Algorithm> = { Ed25519: 'EdDSA' }

async function publicKey(key: Given): Promise<Jwk> {
  const algorithm = algorithmOf(key)
  if (!algorithm) throw new UnusableValue('is neither RSA nor P-256 nor Ed25519')
  const alg = String(key.alg ?? algorithm)
  if ((ALIASES[alg] ?? alg) !== algorithm) throw new UnusableValue(`is not for ${algorithm}`)
  if (key.use !== undefined && key.use !== 'sig') throw new UnusableValue('is not for signatures')
  const kid = Kid.safeParse(key.kid)
  if (!kid.success) throw new UnusableValue('has no text of at most 256 characters as kid')
  const part = verifyingPart(algorithm, key)
  await requireImport(algorithm, part)
  return { ...(kid.data !== undefined && { kid: kid.data }), alg: algorithm, use: 'sig', ...part }
}

async function requireImport(algorithm: Algorithm, part: Jwk): Promise<void> {
  const { key } = schemeOf(algorithm)
  const imported = await crypto.subtle.importKey('jwk', part as JsonWebKey, key, false, ['verify'])
  const { modulusLength: bits = RSA_BITS_MIN } = imported.algorithm as { modulusLength?: number }
  if (bits < RSA_BITS_MIN || bits > RSA_BITS_MAX) {
    throw new UnusableValue(`has not ${RSA_BITS_MIN} to ${RSA_BITS_MAX} bits`)
  }
}

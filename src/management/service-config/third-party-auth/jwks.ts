import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { UnusableValue } from '../../../platform/http/unusable-value.ts'
import { type Algorithm, type Jwk, RSA_BITS_MIN, schemeOf, verifyingPart } from '../../../platform/jwt/jwk.ts'
import { algorithmOf } from '../../../services/gateway/trust.ts'

const KEYS_MAX = 50
/** The maximum length of a stored key set, which is loaded whenever the project is opened. */
export const KEY_SET_CHARACTERS_MAX = 32 * 1024
const RSA_BITS_MAX = 8_192
const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

const Jwks = z.object({ keys: z.array(z.record(z.string(), z.unknown())).max(KEYS_MAX) })
const Kid = Text.max(256).optional()

export interface KeySet {
  keys: Jwk[]
}
type JsonObject = Record<string, unknown>

interface Options {
  /** Ignores keys for other purposes, which published sets may contain. A set in a request must be valid as a whole. */
  ignoresOtherKeys: boolean
  /** Allows an empty set, by which a trusted issuer revokes its keys. */
  allowEmpty?: boolean
}

/** Reads the public keys of a JWK set. Each key is checked by an import and reduced to the members needed to verify. */
export async function readJwks(value: unknown, { ignoresOtherKeys, allowEmpty = false }: Options): Promise<KeySet> {
  const set = Jwks.safeParse(value)
  if (!set.success || (set.data.keys.length === 0 && !allowEmpty))
    throw new UnusableValue(`must be a JWK set: an object with "keys", which has 1 to ${KEYS_MAX} keys`)
  for (const [index, key] of set.data.keys.entries()) rejectSecretKeys(key, index)
  const read = await Promise.all(set.data.keys.map((key, index) => readKey(key, index, ignoresOtherKeys)))
  const keys = read.filter((key) => key !== undefined)
  if (keys.length === 0 && !allowEmpty)
    throw new UnusableValue('must have a key for signatures with RS256, ES256 or EdDSA')
  if (JSON.stringify({ keys }).length > KEY_SET_CHARACTERS_MAX) {
    throw new UnusableValue(`must have at most ${KEY_SET_CHARACTERS_MAX} characters of JSON`)
  }
  return { keys }
}

/** Rejects private keys, which are compromised once published, and symmetric keys, with which verifiers could sign. */
function rejectSecretKeys(key: JsonObject, index: number): void {
  if (key.kty === 'oct') throw new UnusableValue(`must not contain a symmetric key: keys.${index}`)
  const member = PRIVATE_MEMBERS.find((name) => name in key)
  if (member !== undefined) throw new UnusableValue(`must not contain a private key: keys.${index}.${member}`)
}

async function readKey(key: JsonObject, index: number, ignoresOtherKeys: boolean): Promise<Jwk | undefined> {
  try {
    return await publicKey(key)
  } catch (cause) {
    if (ignoresOtherKeys) return undefined
    const reason = cause instanceof UnusableValue ? cause.message : 'cannot be read'
    throw new UnusableValue(`has a key that ${reason}: keys.${index}`, { cause })
  }
}

/** Alternative names of algorithms. */
const ALIASES: Record<string, Algorithm> = { Ed25519: 'EdDSA' }

async function publicKey(key: JsonObject): Promise<Jwk> {
  const algorithm = algorithmOf(key)
  if (!algorithm) throw new UnusableValue('is neither RSA nor P-256 nor Ed25519')
  const alg = String(key.alg ?? algorithm)
  if ((ALIASES[alg] ?? alg) !== algorithm) throw new UnusableValue(`is not for ${algorithm}`)
  if (key.use !== undefined && key.use !== 'sig') throw new UnusableValue('is not for signatures')
  const kid = Kid.safeParse(key.kid)
  if (!kid.success) throw new UnusableValue('has an invalid kid, which must be a text of at most 256 characters')
  const part = verifyingPart(algorithm, key)
  await requireImport(algorithm, part)
  return { ...(kid.data !== undefined && { kid: kid.data }), alg: algorithm, use: 'sig', ...part }
}

async function requireImport(algorithm: Algorithm, part: Jwk): Promise<void> {
  const { key } = schemeOf(algorithm)
  const imported = await crypto.subtle.importKey('jwk', part as JsonWebKey, key, false, ['verify'])
  const { modulusLength: bits = RSA_BITS_MIN } = imported.algorithm as { modulusLength?: number }
  if (bits < RSA_BITS_MIN || bits > RSA_BITS_MAX) {
    throw new UnusableValue(`does not have ${RSA_BITS_MIN} to ${RSA_BITS_MAX} bits`)
  }
}

import * as z from 'zod'
import { SIGNING_KEY_STATUSES } from '../../../model/tables/index.ts'
import { SIGNING_ALGORITHMS } from '../../../platform/jwt/jwk.ts'

/** The length of a number of an RSA key with 8,192 bits. */
const NUMBER_LENGTH_MAX = 1_366
const SECRET_LENGTH_MIN = 16
const SECRET_LENGTH_MAX = 1_366

const base64Url = z.string().regex(/^[\w-]+$/, 'must be base64url')
const bytes32 = base64Url.length(43)
const number = base64Url.max(NUMBER_LENGTH_MAX)

const common = {
  kid: z.uuid().toLowerCase().optional().meta({ description: 'The id of the signing key; generated if omitted' }),
  use: z.literal('sig').optional(),
  key_ops: z
    .array(z.enum(['sign', 'verify']))
    .length(2)
    .refine((operations) => new Set(operations).size === 2, 'must be sign and verify')
    .optional(),
  ext: z.literal(true).optional(),
}

const PrivateJwk = z.discriminatedUnion('kty', [
  z.object({
    ...common,
    kty: z.literal('RSA'),
    alg: z.literal('RS256').optional(),
    e: z.literal('AQAB'),
    ...{ n: number, d: number, p: number, q: number, dp: number, dq: number, qi: number },
  }),
  z.object({
    ...common,
    kty: z.literal('EC'),
    alg: z.literal('ES256').optional(),
    crv: z.literal('P-256'),
    ...{ x: bytes32, y: bytes32, d: bytes32 },
  }),
  z.object({
    ...common,
    kty: z.literal('OKP'),
    alg: z.literal('EdDSA').optional(),
    crv: z.literal('Ed25519'),
    ...{ x: bytes32, d: bytes32 },
  }),
  z.object({
    ...common,
    kty: z.literal('oct'),
    alg: z.literal('HS256').optional(),
    k: base64Url.min(SECRET_LENGTH_MIN).max(SECRET_LENGTH_MAX),
  }),
])
export type PrivateJwk = z.output<typeof PrivateJwk>

const KTY = { RS256: 'RSA', ES256: 'EC', EdDSA: 'OKP', HS256: 'oct' } as const

export const CreateSigningKey = z
  .object({
    algorithm: z.enum(SIGNING_ALGORITHMS),
    status: z.enum(['in_use', 'standby']).default('standby'),
    private_jwk: PrivateJwk.optional().meta({ description: 'The key to import; if omitted, a key is generated' }),
  })
  .refine(({ algorithm, private_jwk: jwk }) => !jwk || jwk.kty === KTY[algorithm], {
    path: ['private_jwk', 'kty'],
    message: 'must match the algorithm',
  })
  .meta({ id: 'CreateSigningKey' })

export const UpdateSigningKey = z.object({ status: z.enum(SIGNING_KEY_STATUSES) }).meta({ id: 'UpdateSigningKey' })

export const SigningKey = z
  .object({
    id: z.uuid(),
    algorithm: z.enum(SIGNING_ALGORITHMS),
    status: z.enum(SIGNING_KEY_STATUSES),
    public_jwk: z.record(z.string(), z.unknown()).nullable().meta({ description: 'Null if the key is symmetric' }),
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'SigningKey' })

export const SigningKeyList = z.object({ keys: z.array(SigningKey) }).meta({ id: 'SigningKeyList' })

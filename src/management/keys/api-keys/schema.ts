import * as z from 'zod'
import { API_ROLES } from '../../../engine/roles.ts'
import { API_KEY_TYPES } from '../../../model/tables/index.ts'
import { isDepthAtMost, isStorable, Text } from '../../../platform/http/common-values.ts'

export const ApiKeyQuery = z.object({
  reveal: z
    .stringbool()
    .default(false)
    .meta({ description: 'Whether to return secret keys in full; otherwise only their prefix' }),
})

const REASON_LENGTH_MAX = 1_000

export const DeleteApiKeyQuery = ApiKeyQuery.extend({
  was_compromised: z
    .stringbool({ truthy: ['true'], falsy: ['false'], case: 'sensitive' })
    .optional()
    .meta({ description: 'Whether the key may have leaked' }),
  reason: Text.max(REASON_LENGTH_MAX).optional(),
})

export const ApiKeyId = z.uuid({ error: 'must be the id of a publishable or secret key' })

const TEMPLATE_LENGTH_MAX = 4_096
const TEMPLATE_DEPTH_MAX = 16
const TIME_CLAIMS = ['exp', 'nbf', 'iat']

/** JWT claims of every request with the key. */
const Template = z
  .looseObject({ role: z.enum(API_ROLES).default('service_role') })
  .refine((template) => isDepthAtMost(template, TEMPLATE_DEPTH_MAX), {
    error: `must not nest deeper than ${TEMPLATE_DEPTH_MAX} levels`,
    abort: true,
  })
  .refine((template) => JSON.stringify(template).length <= TEMPLATE_LENGTH_MAX, {
    error: `must be at most ${TEMPLATE_LENGTH_MAX} characters of JSON`,
    abort: true,
  })
  .refine(isStorable, 'must not contain NUL characters or lone surrogates')
  .refine((template) => TIME_CLAIMS.every((claim) => !(claim in template)), {
    error: `must not contain ${TIME_CLAIMS.join(', ')}: a key is valid until it is deleted`,
  })
  .meta({ id: 'SecretJwtTemplate', description: 'JWT claims of requests with the key; only for secret keys' })

const fields = {
  name: Text.min(4)
    .max(64)
    .regex(/^[a-z_][a-z0-9_]+$/, 'must consist of lower-case letters, digits and _, and must not start with a digit'),
  description: Text.max(1_024).nullable().optional(),
  secret_jwt_template: Template.nullable().optional(),
}

export const CreateApiKey = z.object({ type: z.enum(API_KEY_TYPES), ...fields }).meta({ id: 'CreateApiKey' })

export const UpdateApiKey = z.object({ ...fields, name: fields.name.optional() }).meta({ id: 'UpdateApiKey' })

export const ApiKey = z
  .object({
    name: z.string(),
    api_key: z
      .string()
      .meta({ description: 'The key; a secret key that is not revealed is masked with dots after its prefix' }),
    id: z.string(),
    type: z.enum(['legacy', ...API_KEY_TYPES]),
    prefix: z.string(),
    hash: z.string().meta({ description: 'SHA-256 of the key in base64url' }),
    description: z.string().nullable(),
    secret_jwt_template: z.record(z.string(), z.unknown()).nullable().optional(),
    inserted_at: z.iso.datetime().optional(),
    updated_at: z.iso.datetime().optional(),
  })
  .meta({ id: 'ApiKey' })

export const LegacyApiKeys = z.object({ enabled: z.boolean() }).meta({ id: 'LegacyApiKeys' })

export const UpdateLegacyApiKeysQuery = z.object({ enabled: z.stringbool() })

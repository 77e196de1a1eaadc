import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const sources = {
  oidc_issuer_url: Text.max(2_048).optional().meta({ description: 'Its tokens must say it in iss' }),
  jwks_url: Text.max(2_048).optional(),
  custom_jwks: z.unknown().optional().meta({ description: 'A JWK set of public keys' }),
}

const given = (body: Record<string, unknown>): string[] =>
  Object.keys(sources).filter((name) => body[name] !== undefined && body[name] !== null)

export const CreateIntegration = z
  .object(sources)
  .superRefine((body, ctx) => {
    const [first, second] = given(body)
    const message = `give exactly one of ${Object.keys(sources).join(', ')}`
    if (!first || second) ctx.addIssue({ code: 'custom', path: [second ?? 'oidc_issuer_url'], message })
  })
  .meta({ id: 'CreateThirdPartyAuth' })

export const Integration = z
  .object({
    id: z.uuid(),
    type: z.string().meta({ description: 'What its keys were found by: oidc, jwks or custom_jwks' }),
    oidc_issuer_url: z.string().optional(),
    jwks_url: z.string().optional(),
    custom_jwks: z.unknown().optional(),
    resolved_jwks: z.unknown().optional().meta({ description: 'The keys that are believed' }),
    inserted_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
    resolved_at: z.iso.datetime().optional(),
  })
  .meta({ id: 'ThirdPartyAuth' })

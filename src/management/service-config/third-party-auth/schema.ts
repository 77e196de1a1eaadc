import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const sources = {
  oidc_issuer_url: Text.max(2_048).optional().meta({ description: 'The `iss` claim of its tokens must equal it' }),
  jwks_url: Text.max(2_048).optional(),
  custom_jwks: z.unknown().optional().meta({ description: 'A JWK set of public keys' }),
}

const givenSources = (body: Record<string, unknown>): string[] =>
  Object.keys(sources).filter((name) => body[name] !== undefined && body[name] !== null)

export const CreateIntegration = z
  .object(sources)
  .superRefine((body, ctx) => {
    const [first, second] = givenSources(body)
    const message = `exactly one of ${Object.keys(sources).join(', ')} is required`
    if (!first || second) ctx.addIssue({ code: 'custom', path: [second ?? 'oidc_issuer_url'], message })
  })
  .meta({ id: 'CreateThirdPartyAuth' })

export const Integration = z
  .object({
    id: z.uuid(),
    type: z.string().meta({ description: 'The source of the keys: oidc, jwks or custom_jwks' }),
    oidc_issuer_url: z.string().optional(),
    jwks_url: z.string().optional(),
    custom_jwks: z.unknown().optional(),
    resolved_jwks: z.unknown().optional().meta({ description: 'The keys that are trusted now' }),
    inserted_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
    resolved_at: z.iso.datetime().optional(),
  })
  .meta({ id: 'ThirdPartyAuth' })

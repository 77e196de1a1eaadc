import * as z from 'zod'
import { PLANS } from '../../../config.ts'

const CHARACTERS_MAX = 1_000

/** Any form is accepted: a malformed token gets the same 404 as an expired one. */
export const Token = z.string().max(CHARACTERS_MAX).meta({ description: 'A claim token' })

const tokenFields = {
  expires_at: z.iso.datetime(),
  created_at: z.iso.datetime(),
  created_by: z.uuid(),
}

export const ClaimToken = z
  .object({ token_alias: z.string().meta({ description: 'The beginning and the end of the token' }), ...tokenFields })
  .meta({ id: 'ProjectClaimTokenResponse' })

export const NewClaimToken = z
  .object({ token: z.string().meta({ description: 'The token, which only this reply contains' }), ...ClaimToken.shape })
  .meta({ id: 'CreateProjectClaimTokenResponse' })

const Findings = z.array(z.object({ key: z.string(), message: z.string() }))

export const ProjectClaim = z
  .object({
    project: z.object({ ref: z.string(), name: z.string() }),
    preview: z.object({
      valid: z.boolean(),
      warnings: Findings,
      errors: Findings.meta({ description: 'Reasons why the project cannot be claimed' }),
      info: Findings,
      members_exceeding_free_project_limit: z.array(z.object({ name: z.string(), limit: z.number() })),
      source_subscription_plan: z.enum(PLANS),
      target_subscription_plan: z.enum(PLANS).nullable(),
    }),
    ...tokenFields,
  })
  .meta({ id: 'OrganizationProjectClaimResponse' })

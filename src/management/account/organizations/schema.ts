import * as z from 'zod'
import { PLANS } from '../../../config.ts'
import { RELEASE_CHANNELS } from '../../../model/tables/index.ts'
import { Name, Slug } from '../../../platform/http/common-values.ts'

export const OrganizationHandle = z
  .object({
    id: z.string().meta({ description: 'Deprecated alias of slug', deprecated: true }),
    slug: Slug,
    name: z.string(),
  })
  .meta({ id: 'OrganizationHandle' })

export const CreateOrganization = z.object({ name: Name }).meta({ id: 'CreateOrganization' })

export const Organization = z
  .object({
    id: z.string(),
    name: z.string(),
    plan: z.enum(PLANS).optional(),
    opt_in_tags: z.array(z.string()),
    allowed_release_channels: z.array(z.enum(RELEASE_CHANNELS)),
  })
  .meta({ id: 'Organization' })

export const Member = z
  .object({
    user_id: z.string(),
    user_name: z.string(),
    email: z.string().optional(),
    role_name: z.string().optional(),
    mfa_enabled: z.boolean(),
    avatar_url: z.string().nullable(),
  })
  .meta({ id: 'Member' })

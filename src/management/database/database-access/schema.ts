import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const NETWORKS_MAX = 100
const EPOCH_SECONDS_MAX = 99_999_999_999

export const CreateLoginRole = z
  .object({ read_only: z.boolean().meta({ description: 'Create a role that may read everything and write nothing' }) })
  .meta({ id: 'CreateLoginRole' })

export const LoginRole = z
  .object({ role: z.string(), password: z.string(), ttl_seconds: z.int() })
  .meta({ id: 'LoginRole' })

export const Ended = z.object({ message: z.literal('ok') })

export const JitAccess = z
  .union([
    z.object({ state: z.enum(['enabled', 'disabled']), appliedSuccessfully: z.boolean() }),
    z.object({
      state: z.literal('unavailable'),
      unavailableReason: z.enum(['platform_unsupported', 'postgres_upgrade_required']),
    }),
  ])
  .meta({ id: 'JitAccess' })

export const UpdateJitAccess = z.object({ state: z.enum(['enabled', 'disabled']) }).meta({ id: 'UpdateJitAccess' })

const AllowedNetworks = z
  .object({
    allowed_cidrs: z
      .array(z.object({ cidr: z.cidrv4() }))
      .max(NETWORKS_MAX)
      .optional(),
    allowed_cidrs_v6: z
      .array(z.object({ cidr: z.cidrv6() }))
      .max(NETWORKS_MAX)
      .optional(),
  })
  .meta({ description: 'All networks are allowed if both lists are empty' })

const JitRole = z
  .object({
    role: Text.min(1).meta({
      description: 'postgres (the owner), anon, authenticated, service_role or the read-only role',
    }),
    expires_at: z
      .number()
      .min(0)
      .max(EPOCH_SECONDS_MAX, 'must be in seconds since 1970')
      .optional()
      .meta({ description: 'Seconds since 1970' }),
    allowed_networks: AllowedNetworks.optional(),
    branches_only: z.boolean().optional().meta({ description: 'The grant applies only to branches of the project' }),
  })
  .meta({ id: 'JitRole' })

/** Normalized to lower case, as stored. */
export const UserId = z.uuid().toLowerCase()

export const UpdateJitMapping = z
  .object({ user_id: UserId, roles: z.array(JitRole).max(10) })
  .meta({ id: 'UpdateJitMapping' })

export const JitMapping = z.object({ user_id: z.uuid(), user_roles: z.array(JitRole) }).meta({ id: 'JitMapping' })

export const JitMappingList = z
  .object({
    items: z.array(
      z.object({
        user_id: z.uuid(),
        primary_email: z.string().nullable(),
        invite_id: z.null(),
        expires_at: z.null(),
        user_roles: z.array(JitRole),
      }),
    ),
  })
  .meta({ id: 'JitMappingList' })

export const AuthorizeJit = z
  .object({
    role: Text.min(1),
    rhost: z.union([z.ipv4(), z.ipv6()]).meta({ description: 'The address from which the caller will connect' }),
  })
  .meta({ id: 'AuthorizeJit' })

export const AuthorizedJit = z
  .object({
    user_id: z.uuid(),
    user_role: JitRole,
    login: z
      .object({
        user: z.string(),
        password: z
          .string()
          .optional()
          .meta({ description: 'Returned only once; absent if the password is the access token of this request' }),
        host: z.string(),
        port: z.int(),
        database: z.string(),
        expires_at: z.int(),
      })
      .meta({ description: 'How to connect' }),
  })
  .meta({ id: 'AuthorizedJit' })

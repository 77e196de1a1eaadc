import { get } from '../../kernel/route.ts'
import { Entitlements } from './schema.ts'
import { listEntitlements } from './service.ts'

export const entitlementRoutes = [
  get(
    '/v1/organizations/{slug}/entitlements',
    {
      id: 'v1-get-organization-entitlements',
      summary: 'List what an organization may use here, and how much of it',
      description: 'What the installation does not have at all, no organization may use.',
      scope: 'organizations:read',
      returns: Entitlements,
    },
    async ({ ctx, organization }) => listEntitlements(ctx, organization),
  ),
]

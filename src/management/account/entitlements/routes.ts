import { get } from '../../kernel/route.ts'
import { Entitlements } from './schema.ts'
import { listEntitlements } from './service.ts'

export const entitlementRoutes = [
  get('/v1/organizations/{slug}/entitlements', {
    id: 'v1-get-organization-entitlements',
    summary: 'List the entitlements of an organization',
    description:
      'Lists the features that the organization may use, with their limits. Features that this installation lacks are disabled for every organization.',
    scope: 'organizations:read',
    returns: Entitlements,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, organization }) => listEntitlements(ctx, organization),
  }),
]

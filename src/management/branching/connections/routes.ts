import { get } from '../../kernel/route.ts'
import { listConnections } from './list-connections.ts'
import { ConnectionList, ConnectionListQuery } from './schema.ts'

export const connectionRoutes = [
  get('/v2/organizations/{slug}/integrations/github/connections', {
    id: 'v2-list-organization-github-connections',
    summary: 'List the GitHub connections of an organization',
    description:
      'Ordered by project ref. A page may contain fewer than page[size] items or none: follow links.next until it is null.',
    scope: 'projects:read',
    query: ConnectionListQuery,
    returns: ConnectionList,
    handle: ({ ctx, organization, query }) => listConnections(ctx, organization, query),
  }),
]

import { get } from '../../kernel/route.ts'
import { listConnections } from './list-connections.ts'
import { ConnectionList, ConnectionListQuery } from './schema.ts'

export const connectionRoutes = [
  get(
    '/v2/organizations/{slug}/integrations/github/connections',
    {
      id: 'v2-list-organization-github-connections',
      summary: 'List the projects of an organization that follow a repository at GitHub',
      description:
        'By project ref. A page may hold fewer than page[size] items or none: follow links.next until it is null.',
      scope: 'projects:read',
      query: ConnectionListQuery,
      returns: ConnectionList,
    },
    ({ ctx, organization, query }) => listConnections(ctx, organization, query),
  ),
]

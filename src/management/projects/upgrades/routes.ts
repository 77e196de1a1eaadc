import { get, post } from '../../kernel/route.ts'
import { UpgradeEligibility, UpgradePostgres, UpgradeStarted, UpgradeStatus, UpgradeStatusQuery } from './schema.ts'
import { getEligibility, getUpgradeStatus, startUpgrade } from './service.ts'

export const upgradeRoutes = [
  get(
    '/v1/projects/{ref}/upgrade/eligibility',
    {
      id: 'v1-get-postgres-upgrade-eligibility',
      stability: 'Beta',
      summary: 'Tell whether the Postgres of a project can be upgraded',
      description: 'Wakes a database that sleeps. `objects_to_be_dropped` says in words what else stands in the way.',
      scope: 'projects:read',
      returns: UpgradeEligibility,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project }) => getEligibility(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/upgrade',
    {
      id: 'v1-upgrade-postgres-version',
      summary: "Upgrade a project's Postgres",
      description:
        'In the background, without connections meanwhile. A failure leaves the project in the version that it has. ' +
        'Refused by the driver `neon`, and while something stands in the way.',
      scope: 'projects:write',
      body: UpgradePostgres,
      returns: UpgradeStarted,
      status: 201,
      errors: ['bad_request.driver', 'conflict.project_status', 'service_unavailable.project_database'],
    },
    ({ ctx, project, body }) => startUpgrade(ctx, project, body),
  ),

  get(
    '/v1/projects/{ref}/upgrade/status',
    {
      id: 'v1-get-postgres-upgrade-status',
      summary: "Get how far the upgrade of a project's Postgres is",
      scope: 'projects:read',
      query: UpgradeStatusQuery,
      returns: UpgradeStatus,
    },
    ({ ctx, project, query }) => getUpgradeStatus(ctx, project, query.tracking_id),
  ),
]

import { get, post } from '../../kernel/route.ts'
import { UpgradeEligibility, UpgradePostgres, UpgradeStarted, UpgradeStatus, UpgradeStatusQuery } from './schema.ts'
import { getEligibility, getUpgradeStatus, startUpgrade } from './service.ts'

export const upgradeRoutes = [
  get('/v1/projects/{ref}/upgrade/eligibility', {
    id: 'v1-get-postgres-upgrade-eligibility',
    stability: 'Beta',
    summary: 'Check whether the Postgres version of a project can be upgraded',
    description: 'Wakes a sleeping database. `objects_to_be_dropped` describes the other obstacles in words.',
    scope: 'projects:read',
    returns: UpgradeEligibility,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => getEligibility(ctx, project),
  }),

  post('/v1/projects/{ref}/upgrade', {
    id: 'v1-upgrade-postgres-version',
    summary: 'Upgrade the Postgres version of a project',
    description:
      'Runs in the background; the database accepts no connections meanwhile. After a failure the project keeps its version. ' +
      'The driver `neon` does not support upgrades.',
    scope: 'projects:write',
    body: UpgradePostgres,
    returns: UpgradeStarted,
    status: 201,
    errors: ['bad_request.driver', 'conflict.project_status', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => startUpgrade(ctx, project, body),
  }),

  get('/v1/projects/{ref}/upgrade/status', {
    id: 'v1-get-postgres-upgrade-status',
    summary: 'Get the progress of a Postgres upgrade',
    scope: 'projects:read',
    query: UpgradeStatusQuery,
    returns: UpgradeStatus,
    handle: ({ ctx, project, query }) => getUpgradeStatus(ctx, project, query.tracking_id),
  }),
]

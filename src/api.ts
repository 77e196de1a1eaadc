import { entitlementRoutes } from './management/account/entitlements/routes.ts'
import { maintenanceRoutes } from './management/account/maintenance/routes.ts'
import { memberRoutes } from './management/account/members/routes.ts'
import { oauthRoutes } from './management/account/oauth/routes.ts'
import { organizationRoutes } from './management/account/organizations/routes.ts'
import { profileRoutes } from './management/account/profile/routes.ts'
import { actionRoutes } from './management/branching/actions/routes.ts'
import { branchRoutes } from './management/branching/branches/routes.ts'
import { connectionRoutes } from './management/branching/connections/routes.ts'
import { advisorRoutes } from './management/database/advisors/routes.ts'
import { backupRoutes } from './management/database/backups/routes.ts'
import { databaseRoutes } from './management/database/database/routes.ts'
import { databaseAccessRoutes } from './management/database/database-access/routes.ts'
import { databaseSettingsRoutes } from './management/database/database-settings/routes.ts'
import { migrationRoutes } from './management/database/migrations/routes.ts'
import { notebookRoutes } from './management/database/notebooks/routes.ts'
import { pgsodiumRoutes } from './management/database/pgsodium/routes.ts'
import { privateLinkRoutes } from './management/database/private-link/routes.ts'
import { snippetRoutes } from './management/database/snippets/routes.ts'
import { typeRoutes } from './management/database/types/routes.ts'
import type { Documents } from './management/installation/api-reference.ts'
import { openapi } from './management/kernel/openapi.ts'
import { area, type Route } from './management/kernel/route.ts'
import { apiKeyRoutes } from './management/keys/api-keys/routes.ts'
import { signingKeyRoutes } from './management/keys/signing-keys/routes.ts'
import { analyticsRoutes } from './management/observability/analytics/routes.ts'
import { logDrainRoutes } from './management/observability/log-drains/routes.ts'
import { webhookRoutes } from './management/observability/webhooks/routes.ts'
import { functionRoutes } from './management/programs/functions/routes.ts'
import { secretRoutes } from './management/programs/secrets/routes.ts'
import { workerRoutes } from './management/programs/workers/routes.ts'
import { addonRoutes } from './management/projects/addons/routes.ts'
import { claimRoutes } from './management/projects/claims/routes.ts'
import { projectConfigRoutes } from './management/projects/project-config/routes.ts'
import { projectRoutes } from './management/projects/projects/routes.ts'
import { transferRoutes } from './management/projects/transfers/routes.ts'
import { upgradeRoutes } from './management/projects/upgrades/routes.ts'
import { authConfigRoutes } from './management/service-config/auth-config/routes.ts'
import { domainRoutes } from './management/service-config/domains/routes.ts'
import { postgrestRoutes } from './management/service-config/postgrest/routes.ts'
import { realtimeRoutes } from './management/service-config/realtime/routes.ts'
import { ssoRoutes } from './management/service-config/sso/routes.ts'
import { storageConfigRoutes } from './management/service-config/storage-config/routes.ts'
import { thirdPartyAuthRoutes } from './management/service-config/third-party-auth/routes.ts'
import { storageOpenapi } from './services/storage/openapi.ts'

export const routes: readonly Route[] = [
  ...area('profile', profileRoutes),
  ...area('organizations', organizationRoutes),
  ...area('organizations', memberRoutes),
  ...area('organizations', entitlementRoutes),
  ...area('organizations', maintenanceRoutes),
  ...area('oauth', oauthRoutes),
  ...area('projects', projectRoutes),
  ...area('projects', addonRoutes),
  ...area('projects', upgradeRoutes),
  ...area('projects', projectConfigRoutes),
  ...area('projects', transferRoutes),
  ...area('projects', claimRoutes),
  ...area('branches', branchRoutes),
  ...area('branches', connectionRoutes),
  ...area('actions', actionRoutes),
  ...area('database', databaseRoutes),
  ...area('database', databaseAccessRoutes),
  ...area('database', databaseSettingsRoutes),
  ...area('database', backupRoutes),
  ...area('database', migrationRoutes),
  ...area('database', typeRoutes),
  ...area('database', privateLinkRoutes),
  ...area('advisors', advisorRoutes),
  ...area('snippets', snippetRoutes),
  ...area('notebooks', notebookRoutes),
  ...area('api-keys', apiKeyRoutes),
  ...area('api-keys', pgsodiumRoutes),
  ...area('postgrest', postgrestRoutes),
  ...area('realtime', realtimeRoutes),
  ...area('signing-keys', signingKeyRoutes),
  ...area('auth', authConfigRoutes),
  ...area('auth', ssoRoutes),
  ...area('auth', thirdPartyAuthRoutes),
  ...area('storage', storageConfigRoutes),
  ...area('domains', domainRoutes),
  ...area('workers', workerRoutes),
  ...area('functions', functionRoutes),
  ...area('functions', secretRoutes),
  ...area('analytics', analyticsRoutes),
  ...area('analytics', logDrainRoutes),
  ...area('webhooks', webhookRoutes),
]

export const documents: Documents = {
  v1: (publication) => openapi(routes, 'v1', publication),
  v2: (publication) => openapi(routes, 'v2', publication),
  storage: storageOpenapi,
}

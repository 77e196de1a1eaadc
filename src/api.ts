import { actionRoutes } from './areas/actions/routes.ts'
import { addonRoutes } from './areas/addons/routes.ts'
import { advisorRoutes } from './areas/advisors/routes.ts'
import { analyticsRoutes } from './areas/analytics/routes.ts'
import { apiKeyRoutes } from './areas/api-keys/routes.ts'
import { authConfigRoutes } from './areas/auth-config/routes.ts'
import { backupRoutes } from './areas/backups/routes.ts'
import { branchRoutes } from './areas/branches/routes.ts'
import { claimRoutes } from './areas/claims/routes.ts'
import { connectionRoutes } from './areas/connections/routes.ts'
import { databaseRoutes } from './areas/database/routes.ts'
import { databaseAccessRoutes } from './areas/database-access/routes.ts'
import { databaseSettingsRoutes } from './areas/database-settings/routes.ts'
import { domainRoutes } from './areas/domains/routes.ts'
import { entitlementRoutes } from './areas/entitlements/routes.ts'
import { functionRoutes } from './areas/functions/routes.ts'
import { logDrainRoutes } from './areas/log-drains/routes.ts'
import { maintenanceRoutes } from './areas/maintenance/routes.ts'
import { memberRoutes } from './areas/members/routes.ts'
import { migrationRoutes } from './areas/migrations/routes.ts'
import { notebookRoutes } from './areas/notebooks/routes.ts'
import { oauthRoutes } from './areas/oauth/routes.ts'
import { organizationRoutes } from './areas/organizations/routes.ts'
import { pgsodiumRoutes } from './areas/pgsodium/routes.ts'
import { postgrestRoutes } from './areas/postgrest/routes.ts'
import { privateLinkRoutes } from './areas/private-link/routes.ts'
import { profileRoutes } from './areas/profile/routes.ts'
import { projectConfigRoutes } from './areas/project-config/routes.ts'
import { projectRoutes } from './areas/projects/routes.ts'
import { realtimeRoutes } from './areas/realtime/routes.ts'
import { secretRoutes } from './areas/secrets/routes.ts'
import { signingKeyRoutes } from './areas/signing-keys/routes.ts'
import { snippetRoutes } from './areas/snippets/routes.ts'
import { ssoRoutes } from './areas/sso/routes.ts'
import { storageConfigRoutes } from './areas/storage-config/routes.ts'
import { thirdPartyAuthRoutes } from './areas/third-party-auth/routes.ts'
import { transferRoutes } from './areas/transfers/routes.ts'
import { typeRoutes } from './areas/types/routes.ts'
import { upgradeRoutes } from './areas/upgrades/routes.ts'
import { webhookRoutes } from './areas/webhooks/routes.ts'
import { workerRoutes } from './areas/workers/routes.ts'
import { area, type Route } from './http/route.ts'

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

import { actionRoutes } from './areas/actions/routes.ts'
import { apiKeyRoutes } from './areas/api-keys/routes.ts'
import { backupRoutes } from './areas/backups/routes.ts'
import { branchRoutes } from './areas/branches/routes.ts'
import { databaseRoutes } from './areas/database/routes.ts'
import { databaseAccessRoutes } from './areas/database-access/routes.ts'
import { databaseSettingsRoutes } from './areas/database-settings/routes.ts'
import { functionRoutes } from './areas/functions/routes.ts'
import { migrationRoutes } from './areas/migrations/routes.ts'
import { organizationRoutes } from './areas/organizations/routes.ts'
import { profileRoutes } from './areas/profile/routes.ts'
import { projectRoutes } from './areas/projects/routes.ts'
import { secretRoutes } from './areas/secrets/routes.ts'
import { snippetRoutes } from './areas/snippets/routes.ts'
import { storageConfigRoutes } from './areas/storage-config/routes.ts'
import { typeRoutes } from './areas/types/routes.ts'
import { webhookRoutes } from './areas/webhooks/routes.ts'
import { workerRoutes } from './areas/workers/routes.ts'
import { area, type Route } from './http/route.ts'

export const routes: readonly Route[] = [
  ...area('profile', profileRoutes),
  ...area('organizations', organizationRoutes),
  ...area('projects', projectRoutes),
  ...area('branches', branchRoutes),
  ...area('actions', actionRoutes),
  ...area('database', databaseRoutes),
  ...area('database', databaseAccessRoutes),
  ...area('database', databaseSettingsRoutes),
  ...area('database', backupRoutes),
  ...area('database', migrationRoutes),
  ...area('database', typeRoutes),
  ...area('snippets', snippetRoutes),
  ...area('api-keys', apiKeyRoutes),
  ...area('storage', storageConfigRoutes),
  ...area('workers', workerRoutes),
  ...area('functions', functionRoutes),
  ...area('functions', secretRoutes),
  ...area('webhooks', webhookRoutes),
]

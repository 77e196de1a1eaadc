import { apiKeyRoutes } from './areas/api-keys/routes.ts'
import { databaseRoutes } from './areas/database/routes.ts'
import { organizationRoutes } from './areas/organizations/routes.ts'
import { profileRoutes } from './areas/profile/routes.ts'
import { projectRoutes } from './areas/projects/routes.ts'
import { storageConfigRoutes } from './areas/storage-config/routes.ts'
import { webhookRoutes } from './areas/webhooks/routes.ts'
import { area, type Route } from './http/route.ts'

export const routes: readonly Route[] = [
  ...area('profile', profileRoutes),
  ...area('organizations', organizationRoutes),
  ...area('projects', projectRoutes),
  ...area('database', databaseRoutes),
  ...area('api-keys', apiKeyRoutes),
  ...area('storage', storageConfigRoutes),
  ...area('webhooks', webhookRoutes),
]

import { get } from '../../kernel/route.ts'
import { MaintenanceWindowList } from './schema.ts'
import { listMaintenanceWindows } from './service.ts'

export const maintenanceRoutes = [
  get('/v2/organizations/{slug}/maintenance/windows', {
    id: 'v2-list-organization-maintenance-windows',
    summary: 'List the maintenance windows of the installation',
    description: 'Returns one weekly window for the whole installation, or none.',
    scope: 'organizations:read',
    returns: MaintenanceWindowList,
    handle: async ({ ctx }) => listMaintenanceWindows(ctx),
  }),
]

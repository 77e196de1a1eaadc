import { get } from '../../kernel/route.ts'
import { MaintenanceWindowList } from './schema.ts'
import { listMaintenanceWindows } from './service.ts'

export const maintenanceRoutes = [
  get(
    '/v2/organizations/{slug}/maintenance/windows',
    {
      id: 'v2-list-organization-maintenance-windows',
      summary: 'List when the operator works on the installation',
      description: 'One window for all of it, each week, or none.',
      scope: 'organizations:read',
      returns: MaintenanceWindowList,
    },
    async ({ ctx }) => listMaintenanceWindows(ctx),
  ),
]

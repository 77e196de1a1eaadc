import * as z from 'zod'
import { MaintenanceWindow } from '../../../config.ts'

const Times = z.object({ start_at: z.iso.datetime(), end_at: z.iso.datetime() })

export const MaintenanceWindowList = z
  .object({
    data: z.array(
      z.object({
        type: z.literal('maintenance_window'),
        id: z.string(),
        attributes: z.object({
          window: MaintenanceWindow,
          current_window: Times.nullable(),
          next_windows: z.array(Times),
        }),
      }),
    ),
  })
  .meta({ id: 'MaintenanceWindowList' })

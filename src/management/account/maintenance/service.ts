import type * as z from 'zod'
import { type Config, WEEKDAYS } from '../../../config.ts'
import type { SystemCtx } from '../../../ctx.ts'
import type { MaintenanceWindowList } from './schema.ts'

type Window = NonNullable<Config['MAINTENANCE_WINDOW']>

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS
const WEEK_MS = 7 * DAY_MS
const NEXT_COUNT = 4

/** Lists the maintenance window of the installation, which is the same for every organization. */
export function listMaintenanceWindows({
  config: { MAINTENANCE_WINDOW: window },
  now,
}: Pick<SystemCtx, 'config' | 'now'>): z.input<typeof MaintenanceWindowList> {
  if (!window) return { data: [] }
  const at = now().getTime()
  const latest = latestStart(window, at)
  const timesFrom = (start: number) => ({
    start_at: new Date(start).toISOString(),
    end_at: new Date(start + window.duration_minutes * MINUTE_MS).toISOString(),
  })
  const isOpen = at < latest + window.duration_minutes * MINUTE_MS
  const current_window = isOpen ? timesFrom(latest) : null
  const next_windows = Array.from({ length: NEXT_COUNT }, (_, n) => timesFrom(latest + (n + 1) * WEEK_MS))
  return {
    data: [{ type: 'maintenance_window', id: 'installation', attributes: { window, current_window, next_windows } }],
  }
}

/** Returns the start of the latest window. Every UTC day has the same length, so no calendar is needed. */
function latestStart({ day, start_utc }: Window, at: number): number {
  const [hours = 0, minutes = 0] = start_utc.split(':').map(Number)
  const today = Math.floor(at / DAY_MS) * DAY_MS
  const daysSince = (new Date(at).getUTCDay() - WEEKDAYS.indexOf(day) + 7) % 7
  const start = today - daysSince * DAY_MS + (hours * 60 + minutes) * MINUTE_MS
  return start <= at ? start : start - WEEK_MS
}

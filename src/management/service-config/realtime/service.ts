import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { RealtimeConfig, type UpdateRealtimeConfig } from './schema.ts'

const UNSET = {
  ...(Object.fromEntries(Object.keys(RealtimeConfig.shape).map((name) => [name, null])) as Record<
    keyof typeof RealtimeConfig.shape,
    null
  >),
  presence_enabled: false,
}

export async function getRealtimeConfig({ db }: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof RealtimeConfig>> {
  const { value } = await readSettings(db, ref, 'realtime')
  return { ...UNSET, ...value }
}

export async function updateRealtimeConfig(
  ctx: Ctx,
  project: ProjectAccess,
  changes: z.output<typeof UpdateRealtimeConfig>,
): Promise<void> {
  await changeSettings(ctx, { project, area: 'realtime', work: async (before) => ({ ...before, ...changes }) })
}

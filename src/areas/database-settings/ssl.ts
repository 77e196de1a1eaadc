import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Ctx } from '../../env.ts'
import { requireActive } from '../database/service.ts'
import { settingsFailure } from './postgres.ts'
import { changeSettings, readSettings, type Settings } from './rows.ts'
import type { SslEnforcement } from './schema.ts'

/** What is stored was applied first. */
const toSslEnforcement = (currentConfig: Settings<'ssl'>): z.input<typeof SslEnforcement> => ({
  currentConfig,
  appliedSuccessfully: true,
})

export const getSslEnforcement = async ({ db }: Ctx, { ref }: ProjectAccess) =>
  toSslEnforcement((await readSettings(db, ref, 'ssl')).value)

export async function updateSslEnforcement(ctx: Ctx, project: ProjectAccess, requested: Settings<'ssl'>) {
  requireActive(project)
  const { ref } = project
  const work = async () => {
    await ctx.engine.settings.requireSsl(ref, requested.database).catch((error) => {
      throw settingsFailure(error)
    })
    return requested
  }
  return toSslEnforcement(await changeSettings(ctx, { ref, area: 'ssl', work }))
}

import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { Settings } from '../../projects/settings/setting-areas.ts'
import { throwSettingsFailure } from './postgres.ts'
import type { SslEnforcement } from './schema.ts'

/** `appliedSuccessfully` is always true: a setting is stored only after it was applied. */
const toSslEnforcement = (currentConfig: Settings<'ssl'>): z.input<typeof SslEnforcement> => ({
  currentConfig,
  appliedSuccessfully: true,
})

export async function getSslEnforcement({ db, engine }: Ctx, { ref }: ProjectAccess) {
  if (!engine.capabilities.plainConnections) return toSslEnforcement({ database: true })
  return toSslEnforcement((await readSettings(db, ref, 'ssl')).value)
}

export async function updateSslEnforcement(ctx: Ctx, project: ProjectAccess, requested: Settings<'ssl'>) {
  checkStatus(project.status)
  const { name, capabilities } = ctx.engine
  if (!capabilities.plainConnections && !requested.database) {
    throw new ApiError('bad_request.driver', { detail: `the driver ${name} accepts only encrypted connections` })
  }
  const { ref } = project
  const work = async () => {
    await ctx.engine.settings.setLoginRules(ref, { ssl: requested.database }).catch(throwSettingsFailure)
    return requested
  }
  return toSslEnforcement(await changeSettings(ctx, { project, area: 'ssl', work }))
}

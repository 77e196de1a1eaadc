import type * as z from 'zod'
import { maySeeSecrets, type ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { jwtSecretOf } from '../../../model/secrets/project.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { UpdatePostgrestConfig } from './schema.ts'

export async function getPostgrestConfig(ctx: Ctx, project: ProjectAccess) {
  const { value } = await readSettings(ctx.db, project.ref, 'postgrest')
  return maySeeSecrets(ctx.actor, project.role) ? { ...value, jwt_secret: await jwtSecretOf(ctx, project) } : value
}

export const updatePostgrestConfig = (
  ctx: Ctx,
  project: ProjectAccess,
  changes: z.output<typeof UpdatePostgrestConfig>,
) => changeSettings(ctx, { project, area: 'postgrest', work: async (before) => ({ ...before, ...changes }) })

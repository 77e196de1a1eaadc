import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { roleAllows } from '../../../model/roles.ts'
import { jwtSecretOf } from '../../../model/secrets/project.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { UpdatePostgrestConfig } from './schema.ts'

export async function getPostgrestConfig(ctx: Ctx, project: ProjectAccess) {
  const { value } = await readSettings(ctx.db, project.ref, 'postgrest')
  const maySeeSecrets = roleAllows(project.role, 'secrets:read') && ctx.actor.scopes.includes('secrets:read')
  return maySeeSecrets ? { ...value, jwt_secret: await jwtSecretOf(ctx, project) } : value
}

export const updatePostgrestConfig = (
  ctx: Ctx,
  project: ProjectAccess,
  changes: z.output<typeof UpdatePostgrestConfig>,
) => changeSettings(ctx, { project, area: 'postgrest', work: async (before) => ({ ...before, ...changes }) })

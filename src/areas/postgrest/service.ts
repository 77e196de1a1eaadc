import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import { roleAllows } from '../../auth/roles.ts'
import type { Ctx } from '../../env.ts'
import { jwtSecretOf } from '../../secrets/project.ts'
import { changeSettings } from '../settings/change.ts'
import { readSettings } from '../settings/rows.ts'
import type { UpdatePostgrestConfig } from './schema.ts'

export async function getPostgrestConfig(ctx: Ctx, project: ProjectAccess) {
  const { value } = await readSettings(ctx.db, project.ref, 'postgrest')
  const maySeeSecrets = roleAllows(project.role, 'secrets:read') && ctx.principal.scopes.includes('secrets:read')
  return maySeeSecrets ? { ...value, jwt_secret: await jwtSecretOf(ctx, project) } : value
}

export const updatePostgrestConfig = (
  ctx: Ctx,
  { ref }: ProjectAccess,
  changes: z.output<typeof UpdatePostgrestConfig>,
) => changeSettings(ctx, { ref, area: 'postgrest', work: async (before) => ({ ...before, ...changes }) })

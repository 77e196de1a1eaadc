import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Ctx } from '../../env.ts'
import { pooledConnection } from '../database/service.ts'
import { changeSettings } from '../settings/change.ts'
import { readSettings } from '../settings/rows.ts'
import type { LegacyPooler, UpdatePoolerSettings } from './schema.ts'

export const updatePoolerSettings = (
  ctx: Ctx,
  { ref }: ProjectAccess,
  { default_pool_size, pool_mode }: z.output<typeof UpdatePoolerSettings>,
) =>
  changeSettings(ctx, {
    ref,
    area: 'pooler',
    work: async (before) => ({
      default_pool_size: default_pool_size === undefined ? before.default_pool_size : default_pool_size,
      pool_mode: pool_mode ?? before.pool_mode,
    }),
  })

export async function getLegacyPooler(
  { db, engine }: Ctx,
  project: ProjectAccess,
): Promise<z.input<typeof LegacyPooler>> {
  const { value } = await readSettings(db, project.ref, 'pooler')
  const { default_pool_size, pool_mode } = value
  return {
    ...(default_pool_size !== null && { default_pool_size }),
    pool_mode,
    connection_string: pooledConnection(engine, project, value).connectionString,
  }
}

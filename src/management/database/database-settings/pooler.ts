import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { Settings } from '../../projects/settings/setting-areas.ts'
import { pooledConnection } from '../database/service.ts'
import type { LegacyPooler, UpdatePoolerSettings } from './schema.ts'

/** PgBouncer's defaults, reported to older clients. The platform itself pools no connections. */
const DEFAULTS = {
  ignore_startup_parameters: '',
  server_idle_timeout: 600,
  server_lifetime: 3_600,
  query_wait_timeout: 120,
  reserve_pool_size: 0,
  default_pool_size: 20,
  max_client_conn: 100,
}

export const toPooler = ({ pool_mode, default_pool_size: size }: Settings<'pooler'>) => ({
  ...DEFAULTS,
  pool_mode,
  ...(size !== null && { default_pool_size: size }),
})

export const updatePoolerSettings = (
  ctx: Ctx,
  project: ProjectAccess,
  { default_pool_size, pool_mode }: z.output<typeof UpdatePoolerSettings>,
) =>
  changeSettings(ctx, {
    project,
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
  return { ...toPooler(value), connection_string: pooledConnection(engine, project, value).connectionString }
}

import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { type Configuration, SettingsRefused } from '../../../engine/settings.ts'
import type { ProjectStatus } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { throwApiError } from '../database/service.ts'
import { effectiveConfig, valuesToStore } from './effective-config.ts'
import type { PostgresConfig, UpdatePostgresConfig } from './schema.ts'

export const getPostgresConfig = async (ctx: Ctx, project: ProjectAccess): Promise<PostgresConfig> =>
  effectiveConfig(ctx, project, (await readSettings(ctx.db, project.ref, 'postgres')).value)

/** Statuses in which a setting that keeps the server from starting can be corrected. */
const OFFLINE: readonly ProjectStatus[] = ['INACTIVE', 'RESTORE_FAILED']

/** `replace` resets settings that the body does not name; otherwise they stay unchanged. */
export async function updatePostgresConfig(
  ctx: Ctx,
  project: ProjectAccess,
  { restart_database: restart, ...body }: z.output<typeof UpdatePostgresConfig>,
  { replace }: { replace: boolean },
): Promise<PostgresConfig> {
  checkStatus(project.status, { allowed: ctx.engine.capabilities.offlineSettings ? [...ACTIVE, ...OFFLINE] : ACTIVE })
  const chosen = await changeSettings(ctx, {
    project,
    area: 'postgres',
    work: async (before) => {
      const after = replace
        ? valuesToStore(body, before, await effectiveConfig(ctx, project, before))
        : { ...before, ...body }
      await configure(ctx, project.ref, after, { before, restart }).catch(throwSettingsFailure)
      return after
    },
  })
  return effectiveConfig(ctx, project, chosen)
}

interface ConfigureOptions {
  before?: PostgresConfig
  restart?: boolean | undefined
}

/** Applies `config` to the database. Settings in `before` that `config` lacks are reset to the server's defaults. */
export async function configure(
  { engine }: SystemCtx,
  ref: string,
  config: PostgresConfig,
  options: ConfigureOptions = {},
): Promise<void> {
  await engine.settings.configure(ref, configurationOf(config, options))
}

/** The settings in the form that the engine takes. */
export function configurationOf(
  config: PostgresConfig,
  { before = {}, restart }: ConfigureOptions = {},
): Configuration {
  const { max_connections: connectionsMax = null, ...set } = config
  const { max_connections: _limit, ...previous } = before
  const reset = Object.keys(previous).filter((name) => !(name in set))
  return { set, reset, connectionsMax, ...(restart !== undefined && { restart }) }
}

/** Throws the error of the API for an error of the engine. For settings that Postgres refused, it names the fields. */
export function throwSettingsFailure(error: unknown): never {
  if (!(error instanceof SettingsRefused)) throwApiError(error)
  const issues = error.refusals.map(({ setting, reason }) => ({
    field: `body.${setting}`,
    code: 'refused',
    message: reason,
  }))
  throw new ApiError('bad_request.validation_failed', { issues, cause: error })
}

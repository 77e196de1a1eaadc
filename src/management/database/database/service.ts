import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { TOO_MANY_CONNECTIONS } from '../../../engine/connection-limit.ts'
import type { ProjectEngine, Replica, SqlResult } from '../../../engine/engine.ts'
import {
  EngineBusy,
  EngineUnavailable,
  NoCapacity,
  SqlError,
  SqlResultTooLarge,
  SqlTimeout,
} from '../../../engine/engine-errors.ts'
import { SettingsRefused } from '../../../engine/settings.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changePassword } from '../../projects/projects/project-secrets.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { Settings } from '../../projects/settings/setting-areas.ts'

interface Script {
  query: string
  parameters?: readonly unknown[] | undefined
  readOnly: boolean
}

/** The errors of `runQuery`. */
export const SQL_ERRORS = [
  'bad_request.sql',
  'bad_request.sql_timeout',
  'bad_request.sql_result_too_large',
  'conflict.project_status',
  'service_unavailable.project_database',
] as const

/** Runs the caller's SQL on the project's database and returns the rows of the last statement as a JSON array in text. */
export async function runQuery(ctx: Ctx, project: ProjectAccess, script: Script): Promise<SqlResult> {
  checkStatus(project.status)
  const runnerPassword = await runnerPasswordOf(ctx, project)
  const { query, parameters, readOnly } = script
  const timeoutMs = ctx.config.SQL_TIMEOUT_SECONDS * 1000
  const request = { ref: project.ref, runnerPassword, query, readOnly, timeoutMs, ...(parameters && { parameters }) }
  return ctx.engine.runSql(request).catch(throwApiError)
}

/** Throws the error of the API for an error of the engine, and any other error as it is. */
export function throwApiError(error: unknown): never {
  if (error instanceof SqlError) throw sqlFailure(error)
  if (error instanceof SqlTimeout) {
    throw new ApiError('bad_request.sql_timeout', { detail: `${error.timeoutMs / 1000} s`, cause: error })
  }
  if (error instanceof SqlResultTooLarge) {
    throw new ApiError('bad_request.sql_result_too_large', {
      detail: `at most ${error.sizeBytesMax} bytes`,
      cause: error,
    })
  }
  if (error instanceof EngineBusy) {
    throw new ApiError('conflict.project_status', {
      detail: 'another operation on it is still running',
      cause: error,
    })
  }
  if (error instanceof EngineUnavailable) {
    const detail = error instanceof NoCapacity ? error.message : describeFullDatabase(error)
    throw new ApiError('service_unavailable.project_database', { detail, cause: error })
  }
  throw error
}

/** Describes why the database refuses further sessions. A limit that the owner has set does not end by itself. */
function describeFullDatabase({ code, message }: EngineUnavailable): string | undefined {
  if (code !== TOO_MANY_CONNECTIONS) return undefined
  return message.startsWith('too many connections for database')
    ? `${message}: its CONNECTION LIMIT is reached; with the driver \`host\`, a restart of the project resets it`
    : 'too many queries are running; try again shortly'
}

/** The message has the format that clients know; the extra fields are those of Postgres. */
function sqlFailure(error: SqlError): ApiError {
  const { severity, code, message, position, hint, detail, where } = error
  const fields = { severity, code, position, hint, detail, where }
  return new ApiError('bad_request.sql', {
    detail: `${severity}:  ${code}: ${message}`,
    extra: Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)),
    cause: error,
  })
}

export async function updatePassword(ctx: Ctx, project: ProjectAccess, password: string): Promise<{ message: string }> {
  await changePassword(ctx, project, password).catch((error) => {
    if (!(error instanceof SettingsRefused)) throwApiError(error)
    const issues = error.refusals.map(({ reason }) => ({ field: 'body.password', code: 'refused', message: reason }))
    throw new ApiError('bad_request.validation_failed', { issues, cause: error })
  })
  return { message: 'Successfully updated password' }
}

/** Returns the connection through the driver's pooler in transaction mode if it has one, otherwise a direct connection. */
export function pooledConnection(
  engine: ProjectEngine,
  project: ProjectAccess,
  { pool_mode }: Settings<'pooler'>,
  replica?: Replica,
) {
  const connection = { ...engine.connection(project), ...replica }
  const { host: direct, poolerHost, port, user, database } = connection
  const host = pool_mode === 'transaction' && poolerHost ? poolerHost : direct
  const connectionString = `postgresql://${user}:[YOUR-PASSWORD]@${host}:${port}/${database}`
  return { host, port, user, database, connectionString }
}

/** Returns the connection parameters of the database and of each replica. */
export async function getPoolerConfig({ db, engine }: Ctx, project: ProjectAccess) {
  const { value } = await readSettings(db, project.ref, 'pooler')
  return [undefined, ...(engine.replicas?.list(project) ?? [])].map((replica) => {
    const { host, port, user, database, connectionString } = pooledConnection(engine, project, value, replica)
    return {
      identifier: replica?.identifier ?? project.ref,
      database_type: replica ? ('READ_REPLICA' as const) : ('PRIMARY' as const),
      is_using_scram_auth: true,
      db_user: user,
      db_host: host,
      db_port: port,
      db_name: database,
      connection_string: connectionString,
      connectionString,
      default_pool_size: value.default_pool_size,
      max_client_conn: null,
      pool_mode: value.pool_mode,
    }
  })
}

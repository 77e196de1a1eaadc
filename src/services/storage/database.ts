import type { SystemCtx } from '../../ctx.ts'
import { TOO_MANY_CONNECTIONS } from '../../engine/connection-limit.ts'
import type { Row, Statement } from '../../engine/engine.ts'
import { EngineUnavailable, SqlError } from '../../engine/engine-errors.ts'
import { API_ROLES } from '../../engine/roles.ts'
import type { Credential } from '../../platform/jwt/credential.ts'
import { withTimeout } from '../../platform/timeout.ts'
import { type OpenedProject, reloadProject } from '../gateway/open-project.ts'
import { isPaused } from '../gateway/paused.ts'
import { prepareIfDue } from '../gateway/prepare-project.ts'
import { StorageError } from './storage-error.ts'

/** A project and the context in which its storage is used. */
export interface Storage {
  ctx: SystemCtx
  project: OpenedProject
}

/** The credential of a request, and the properties of the request that policies can read. */
export interface Caller extends Credential {
  method: string
  path: string
  /** The JWT as sent; empty for an API key, which the project's SQL must not see. */
  token: string
  /** JSON of the request's headers without those that carry credentials. */
  headers: string
  /** The value of `storage.operation()`, such as `storage.object.upload`. */
  operation: string
}

/** Runs statements as the server's role, to which no policy applies: one round trip. */
export const asServer = (storage: Storage, statements: readonly Statement[]): Promise<Row[][]> =>
  run(storage, statements)

/**
 * Runs statements with the role and claims of the caller, so that the project's policies apply: one transaction, one round trip.
 * `before` runs as the server. Returns the rows of `before`, then those of `statements`.
 */
export async function asCaller(
  storage: Storage,
  caller: Caller,
  statements: readonly Statement[],
  before: readonly Statement[] = [],
): Promise<Row[][]> {
  const rows = await run(storage, [...before, setCaller(caller), ...statements])
  return rows.toSpliced(before.length, 1)
}

/** Runs statements that only read. No policy applies to the service role, so switching to it is not necessary. */
export const asReader = (storage: Storage, caller: Caller, statements: readonly Statement[]): Promise<Row[][]> =>
  caller.role === 'service_role' ? asServer(storage, statements) : asCaller(storage, caller, statements)

/** The search path of policies and triggers; the server's own role searches the catalogue only. */
const PROJECT_PATH = '"$user", public, extensions'

function setCaller(caller: Caller): Statement {
  const { role, claims, userId, method, path, token, headers, operation } = caller
  const settings = {
    search_path: PROJECT_PATH,
    'request.jwt': token,
    'request.headers': headers,
    'request.jwt.claims': JSON.stringify(claims),
    'request.jwt.claim.role': role,
    'request.jwt.claim.sub': userId ?? '',
    'request.method': method,
    'request.path': path,
    'storage.operation': operation,
    role,
  }
  const known = API_ROLES.includes(role)
  const calls = Object.keys(settings).map((name, n) => {
    const value = name === 'role' && !known ? claimedRole(`$${n + 1}`) : `$${n + 1}`
    return `set_config('${name}', ${value}, true)`
  })
  // One number instead of ten columns, whose names would be most of the reply.
  return { text: `select num_nulls(${calls.join(', ')})`, params: Object.values(settings) }
}

/**
 * The role that a token claims if it is a NOLOGIN role, else the empty name, which Postgres refuses. Without this, `none` would keep
 * the server's own role, to which no policy applies.
 */
const claimedRole = (name: string) =>
  `coalesce((SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname = ${name} AND NOT rolcanlogin AND rolname !~ '^pg_'), '')`

/** Longer than the statement timeout of the server's role. */
const ANSWER_MS_MAX = 40_000

async function run(storage: Storage, statements: readonly Statement[]): Promise<Row[][]> {
  const { ctx, project } = storage
  const { ref, runnerPassword } = project
  const send = () =>
    withTimeout(
      ANSWER_MS_MAX,
      ctx.engine.runBatch({ ref, runnerPassword, statements }),
      () => new StorageError('DatabaseTimeout'),
    )
  const sentAt = ctx.now().getTime()
  try {
    return await send()
  } catch (error) {
    if (error instanceof EngineUnavailable && error.code !== TOO_MANY_CONNECTIONS) await requireActive(storage)
    if (!isSchemaOutdated(error) || !(await prepareIfDue(storage, sentAt))) throw error
    return send()
  }
}

/** Throws a clearer error if the database is unreachable because the project was paused or removed a moment ago. */
async function requireActive({ ctx, project }: Storage): Promise<void> {
  const isActive = project.status.startsWith('ACTIVE_')
  const current = isActive ? await reloadProject(ctx, project.ref).catch(() => project) : project
  if (!current) throw new StorageError('NoSuchProject')
  if (current.status.startsWith('ACTIVE_')) return
  if (isPaused(current.status)) throw new StorageError('ProjectPaused')
  throw new StorageError(
    'ProjectUnavailable',
    `The project must be active to serve requests: its status is ${current.status}`,
  )
}

/** A role, password, schema, table, column, function or membership is missing: the project may have an older storage schema. */
const isSchemaOutdated = (error: unknown): boolean =>
  (error instanceof EngineUnavailable && /^28/.test(error.code ?? '')) ||
  (error instanceof SqlError &&
    (['3F000', '42P01', '42883', '42703'].includes(error.code) ||
      error.message.startsWith('permission denied to set role')))

import { TOO_MANY_CONNECTIONS } from '../../engine/connection-limit.ts'
import { EngineUnavailable, type Row, SqlError, type Statement } from '../../engine/engine.ts'
import { API_ROLES } from '../../engine/roles.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Credential } from '../../platform/jwt/credential.ts'
import { reloadProject } from '../gateway/open-project.ts'
import type { Storage } from './request.ts'
import { inTime } from './retry-until-ready.ts'
import { StorageError } from './storage-error.ts'

/** What policies may read of the request, beside the claims. */
export interface Caller extends Credential {
  method: string
  path: string
  /** As it came; empty where it is a key, which the project's own functions need not see. */
  token: string
  /** JSON, without what credentials are carried in. */
  headers: string
  /** Such as `storage.object.upload`. */
  operation: string
}

/** As the server itself, whom no policy binds: one round trip. */
export const asServer = (storage: Storage, statements: readonly Statement[]): Promise<Row[][]> =>
  run(storage, statements)

/**
 * As the role of the caller's token with its claims, so that the policies of the project decide: one transaction and one round trip.
 * `before` runs as the server. Returns the rows of `before` and of `statements`, one after the other.
 */
export async function asCaller(
  storage: Storage,
  caller: Caller,
  statements: readonly Statement[],
  before: readonly Statement[] = [],
): Promise<Row[][]> {
  const rows = await run(storage, [...before, becoming(caller), ...statements])
  return rows.toSpliced(before.length, 1)
}

/** For statements that only read: no policy binds the service role, so it need not be taken on. */
export const asReader = (storage: Storage, caller: Caller, statements: readonly Statement[]): Promise<Row[][]> =>
  caller.role === 'service_role' ? asServer(storage, statements) : asCaller(storage, caller, statements)

/** What the functions of policies and triggers know; the server's own role finds nothing but the catalogue. */
const PROJECT_PATH = '"$user", public, extensions'

function becoming(caller: Caller): Statement {
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
  // Nobody needs what they return: of ten columns the names alone would be most of the reply.
  return { text: `select num_nulls(${calls.join(', ')})`, params: Object.values(settings) }
}

/**
 * A role that the project's owner has granted to authenticator; the empty name, which no role has, for one that can log in and for
 * `none`: no policy binds the role that is logged in.
 */
const claimedRole = (name: string) =>
  `coalesce((SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname = ${name} AND NOT rolcanlogin AND rolname !~ '^pg_'), '')`

/** More than any statement may take. */
const ANSWER_MS_MAX = 40_000

async function run(storage: Storage, statements: readonly Statement[]): Promise<Row[][]> {
  const { ctx, project } = storage
  const { ref, runnerPassword } = project
  const send = async () => {
    const rows = await inTime(ANSWER_MS_MAX, ctx.engine.runBatch({ ref, runnerPassword, statements }))
    if (!rows) throw new StorageError('DatabaseTimeout')
    return rows.value
  }
  const sentAt = ctx.now().getTime()
  try {
    return await send()
  } catch (error) {
    if (error instanceof EngineUnavailable && error.code !== TOO_MANY_CONNECTIONS) await requireActive(storage)
    if (!isFromBefore(error) || !(await wasUpgraded(storage, sentAt))) throw error
    return send()
  }
}

/** Throws what is better to know than that the database cannot be reached: it may have been paused or removed just now. */
async function requireActive({ ctx, project }: Storage): Promise<void> {
  const isActive = project.status.startsWith('ACTIVE_')
  const now = isActive ? await reloadProject(ctx, project.ref).catch(() => project) : project
  if (!now) throw new StorageError('NoSuchProject')
  if (now.status.startsWith('ACTIVE_')) return
  throw new StorageError('ProjectUnavailable', `The project takes no requests: its status is ${now.status}`)
}

/** No such role or password, schema, table, function, or membership: the project may come from before the storage schema has it. */
const isFromBefore = (error: unknown): boolean =>
  (error instanceof EngineUnavailable && /^28/.test(error.code ?? '')) ||
  (error instanceof SqlError &&
    (['3F000', '42P01', '42883', '42703'].includes(error.code) ||
      error.message.startsWith('permission denied to set role')))

/** One that stays broken, as its owner broke it, must not cost an upgrade a request. */
const UPGRADE_EVERY_MS = 60_000
const upgradedAt = new Map<string, number>()

/** Whether what was sent at that time may go better now: also where an upgrade failed in another part. */
async function wasUpgraded({ ctx, project }: Storage, sentAt: number): Promise<boolean> {
  const { ref, runnerPassword } = project
  const last = upgradedAt.get(ref) ?? 0
  if (last >= sentAt) return true
  if (sentAt - last < UPGRADE_EVERY_MS) return false
  await ctx.engine.prepare({ ref, runnerPassword }).catch((error) => {
    ctx.log.error('storage_upgrade_failed', { project: ref, error: describeError(error) })
  })
  upgradedAt.set(ref, ctx.now().getTime())
  return true
}

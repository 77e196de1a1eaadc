import type { IncomingMessage, ServerResponse } from 'node:http'
import * as z from 'zod'
import { errorCode, errorMessage } from '../../dev/start-error.ts'
import { EngineUnavailable } from '../../src/engine/engine-errors.ts'
import { HOST_NAMES } from '../../src/engine/host/names.ts'
import { scriptFailure } from '../../src/engine/host/script-failure.ts'
import { RESULT_SIZE_BYTES_MAX, runSql, SQL_TIMEOUT_MS_MAX } from '../../src/engine/run-sql.ts'
import type { Login, SessionSource, Session as SqlSession, Wire } from '../../src/engine/session.ts'
import { parseJson } from '../../src/platform/http/parse-json.ts'
import type { Instance, Instances } from '../instances/types.ts'
import type { HostKey } from '../key.ts'
import { readWithin } from './body.ts'
import type { Account } from './budget.ts'
import { send, sendReply } from './http.ts'
import type { SqlLimits } from './limits.ts'
import type { Session } from './session.ts'
import type { Lease, SessionState, Sessions } from './sessions.ts'
import { bearerToken, scriptTarget } from './target.ts'
import { MEMORY_FACTOR } from './text-query.ts'

const Script = z.strictObject({
  instance: z.string(),
  query: z.string(),
  /** Values as text; null for NULL. */
  parameters: z.array(z.string().nullable()).optional(),
  read_only: z.boolean(),
  timeout_ms: z.int().min(1).max(SQL_TIMEOUT_MS_MAX).optional(),
})

export interface ScriptOptions {
  instances: Instances
  sessions: Sessions
  key: HostKey
  openAccount(name: string): Account
  openBodyAccount(name: string): Account
  limits: SqlLimits
}

/**
 * Answers POST /script of the control plane: runs one or more statements of the owner, as a role that the control plane chooses.
 * The reply is the JSON of the last statement's rows.
 */
export function answerScript({ instances, sessions, key, openAccount, openBodyAccount, limits }: ScriptOptions) {
  return async function script(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (!key.matches(bearerToken(req.headers))) return void res.writeHead(401).end()
    // The instance is known before the body is read. Older control planes do not name it here; their bodies share one account.
    const bodyAccount = openBodyAccount(String(req.headers['x-instance'] ?? ''))
    let account: Account | undefined
    try {
      const parsed = Script.safeParse(parseJson(await readWithin(req, bodyAccount, limits)))
      if (!parsed.success) return fail(res, 400, { message: z.prettifyError(parsed.error) })
      const { instance: name, query, parameters, read_only: readOnly, timeout_ms: timeoutMs } = parsed.data
      const instance = instances.find(name)
      if (!instance) throw new EngineUnavailable('the database does not exist', { code: '3D000' })
      const opened = openAccount(name)
      account = opened
      const reserve = () => opened.reserve(RESULT_SIZE_BYTES_MAX * MEMORY_FACTOR)
      const json = await runSql(sourceOf({ instance, sessions, res, reserve }), {
        ...{ ref: name, runnerPassword: '', query, parameters, readOnly, timeoutMs },
      })
      const bytes = json.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0)
      await sendReply(res, { text: '', parts: json, bytes }, account, limits.sendTimeoutMs)
    } catch (error) {
      const failure = scriptFailure(error)
      if (failure) fail(res, 422, failure)
      else fail(res, 503, { kind: 'unavailable', message: errorMessage(error) })
    } finally {
      account?.hold(0)
      bodyAccount.hold(0)
    }
  }
}

const fail = (res: ServerResponse, status: number, body: object) => send(res, status, JSON.stringify(body))

interface Source {
  instance: Instance
  sessions: Sessions
  res: ServerResponse
  reserve(): Promise<void>
}

function sourceOf({ instance, sessions, res, reserve }: Source): SessionSource {
  let session: Session | undefined
  return {
    names: HOST_NAMES,
    userOf: (role) => `${role}.${instance.name}`,
    async open(login) {
      const target = scriptTarget(instance.name, login.user, optionsOf(login))
      try {
        const lease = await acquireCurrent(sessions, target, res)
        session = lease.session
        return sessionOn(lease, res)
      } catch (error) {
        throw new EngineUnavailable(errorMessage(error), { code: errorCode(error), cause: error })
      }
    },
    endBackend: (processId) =>
      instance.admin.rows('select pg_catalog.pg_terminate_backend($1)', [processId]).then(
        () => {},
        () => {},
      ),
    async reserve() {
      if (session) session.isPaused = true
      await reserve().finally(() => {
        if (session) session.isPaused = false
      })
    },
  }
}

const optionsOf = ({ settings }: Login): string =>
  Object.entries({ ...settings, local_preload_libraries: '', transaction_timeout: 0 })
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ')

/**
 * Reads a digest of the settings of roles, databases and the server, and of the role's name: a session that was opened before a
 * change is outdated. The settings themselves may be long. It uses no operators and only qualified functions, because the owner
 * may set the search path.
 */
const PRESETS = `select pg_catalog.md5(pg_catalog.concat(session_user, pg_catalog.pg_conf_load_time(),
  (select pg_catalog.jsonb_agg(preset) from pg_catalog.pg_db_role_setting preset)))`
const presets = new WeakMap<Session, string>()

async function acquireCurrent(
  sessions: Sessions,
  target: ReturnType<typeof scriptTarget>,
  res: ServerResponse,
): Promise<Lease> {
  for (;;) {
    const lease = await sessions.acquire(target, res)
    const { session } = lease
    try {
      const { rows } = await session.client.query<[string]>({ text: PRESETS, rowMode: 'array' })
      const current = rows[0]?.[0] ?? ''
      if (!session.isReused) presets.set(session, current)
      if (presets.get(session) === current) return lease
      lease.release('broken')
    } catch (error) {
      lease.release('broken')
      if (!session.isReused) throw error
    }
  }
}

/** Wraps a session for one request; the session is dropped if the client disconnects. */
function sessionOn({ session, release }: Lease, res: ServerResponse): SqlSession {
  const { client } = session
  // Members of the driver's clients that its types leave out.
  const driver = client as unknown as { processID: number; connection: Wire; readyForQuery: boolean }
  const { processID: processId, connection: wire } = driver
  let isReleased = false
  const releaseOnce = (state: SessionState) => {
    if (isReleased) return
    isReleased = true
    res.off('close', drop)
    client.off('drain', settle).off('end', drop)
    session.sink = undefined
    release(state)
  }
  const settle = () => releaseOnce(session.transactionStatus() === 'I' ? 'used' : 'failed')
  const drop = () => releaseOnce('broken')
  res.once('close', drop)
  return {
    processId,
    wire,
    rows: async (text, values) => (await client.query(text, values && [...values])).rows,
    submit(exchange) {
      session.sink = exchange.rows
      client.query(exchange as never)
    },
    close() {
      res.off('close', drop)
      // An error of the server arrives before it is ready for the next statement.
      if (driver.readyForQuery) settle()
      else client.once('drain', settle).once('end', drop)
    },
    drop,
  }
}

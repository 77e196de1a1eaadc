import {
  EngineUnavailable,
  SqlError,
  type SqlRequest,
  type SqlResult,
  SqlResultTooLarge,
  SqlTimeout,
} from './engine.ts'
import { TOO_MANY_CONNECTIONS, throughGate } from './gate.ts'
import { projectNames } from './names.ts'
import { repairRunners } from './roles.ts'
import { type Cluster, type Login, openSession, type Session, withAdmin } from './session.ts'
import { splitStatements } from './split.ts'
import { type Outcome, runStatement } from './statement.ts'
import { parameterText } from './values.ts'

export const SQL_TIMEOUT_MS_MAX = 300_000
const TIMEOUT_MS_DEFAULT = 60_000
const LOCK_TIMEOUT_MS = 30_000
/** What the server may send for one request, and how long the JSON of the answer may be. */
export const RESULT_SIZE_BYTES_MAX = 16 * 1024 * 1024
/** Postgres stops a statement this much earlier than the engine ends the session. */
const TIMEOUT_MARGIN_MS_MAX = 250
/** How often a running statement looks whether its caller is still there. */
const CALLER_CHECK_INTERVAL_MS = 2_000
const END_WAIT_MS = 2_000
const CONNECTION_WAIT_MS_MAX = 10_000
const CONNECTION_RETRY_MS = 100

export async function runSql(cluster: Cluster, request: SqlRequest): Promise<SqlResult> {
  if (request.query.includes('\0')) {
    throw new SqlError({ code: '22021', message: 'The query contains a NUL character, which SQL text cannot hold' })
  }
  const work = request.readOnly ? runReadOnly : runFreely
  const { json, rowCount } = await withProjectSession(cluster, request, (session) => work(session, request))
  return { json, rowCount }
}

type SessionRequest = Omit<SqlRequest, 'query' | 'parameters'>

/** A session under the project's name, ended when its time is over, whatever its statements do. */
export async function withProjectSession<Value>(
  cluster: Cluster,
  request: SessionRequest,
  work: (session: Session) => Promise<Value>,
): Promise<Value> {
  const timeoutMs = Math.min(request.timeoutMs ?? TIMEOUT_MS_DEFAULT, SQL_TIMEOUT_MS_MAX)
  const { runner, reader } = projectNames(request.ref)
  const waitMs = Math.min(timeoutMs, CONNECTION_WAIT_MS_MAX)
  const runMs = waitMs + timeoutMs + END_WAIT_MS
  return throughGate(request.readOnly ? reader : runner, { waitMs, runMs }, () =>
    runOnce(cluster, { ...request, timeoutMs }, work),
  )
}

async function runOnce<Value>(
  cluster: Cluster,
  request: SessionRequest & { timeoutMs: number },
  work: (session: Session) => Promise<Value>,
): Promise<Value> {
  const { timeoutMs } = request
  const deadline = Date.now() + timeoutMs
  const session = await openProjectSession(cluster, request, timeoutMs)
  const guard = guardSession(session, deadline, timeoutMs)
  try {
    const value = await Promise.race([work(session), guard.broken])
    session.close()
    return value
  } catch (error) {
    session.drop()
    const isTimeout = isCancellation(error) && deadline - Date.now() <= timeoutMarginMs(timeoutMs)
    if (!(error instanceof SqlError)) await endBackend(cluster, request.ref, session.processId)
    throw isTimeout ? new SqlTimeout(timeoutMs) : error
  } finally {
    guard.release()
  }
}

async function openProjectSession(cluster: Cluster, request: SessionRequest, timeoutMs: number): Promise<Session> {
  const { database, owner, runner, reader } = projectNames(request.ref)
  const login = {
    user: request.readOnly ? reader : runner,
    password: request.runnerPassword,
    database,
    settings: {
      role: request.readOnly ? 'none' : owner,
      statement_timeout: Math.max(timeoutMs - timeoutMarginMs(timeoutMs), 1),
      lock_timeout: LOCK_TIMEOUT_MS,
      idle_in_transaction_session_timeout: timeoutMs,
      client_connection_check_interval: CALLER_CHECK_INTERVAL_MS,
    },
  }
  const open = () => openWhenFree(cluster, login, Date.now() + Math.min(timeoutMs, CONNECTION_WAIT_MS_MAX))
  try {
    return await open()
  } catch (error) {
    // SQL can change the password of the role it was started by, so a refused one is set again, once.
    if (!(error instanceof EngineUnavailable) || error.code !== '28P01') throw error
    await repairRunners(cluster, request.ref, request.runnerPassword)
    return await open()
  }
}

/** Other isolates may have taken the role's connections: then this one waits for one that ends, for a while. */
async function openWhenFree(cluster: Cluster, login: Login, until: number): Promise<Session> {
  for (;;) {
    try {
      return await openSession(cluster, login)
    } catch (error) {
      const full = error instanceof EngineUnavailable && error.code === TOO_MANY_CONNECTIONS
      if (!full || Date.now() >= until) throw error
      await new Promise((resolve) => setTimeout(resolve, CONNECTION_RETRY_MS * (0.5 + Math.random())))
    }
  }
}

function runFreely(session: Session, { query, parameters = [] }: SqlRequest): Promise<Outcome> {
  const values = parameters.length > 0 ? parameters.map(parameterText) : undefined
  return runStatement(session, { text: query, values }, RESULT_SIZE_BYTES_MAX)
}

/**
 * Statements go one by one through the extended protocol, inside a read-only transaction that already has its snapshot
 * and so cannot become writable. Whatever ends that transaction ends the request; closing the session rolls it back.
 */
async function runReadOnly(session: Session, { query, parameters = [] }: SqlRequest): Promise<Outcome> {
  await runStatement(session, { text: 'BEGIN TRANSACTION READ ONLY; SELECT 1' }, RESULT_SIZE_BYTES_MAX)
  const values = parameters.map(parameterText)
  const statements = values.length > 0 ? [{ text: query, characterOffset: 0 }] : splitStatements(query)
  let last: Outcome = { json: '[]', rowCount: 0, tag: '' }
  for (const { text, characterOffset } of statements) {
    const outcome = await runStatement(
      session,
      { text, values, positionOffset: characterOffset },
      RESULT_SIZE_BYTES_MAX,
    )
    if (/^(BEGIN|START|COMMIT|ROLLBACK|PREPARE TRANSACTION|SAVEPOINT|RELEASE)/.test(outcome.tag)) {
      throw new SqlError({ code: '25001', message: 'Transaction control is not allowed in a read-only query' })
    }
    if (outcome.tag !== '') last = outcome
  }
  return last
}

/** Rejects when the session must not go on, whatever its statements do. */
function guardSession(session: Session, deadline: number, timeoutMs: number) {
  let timer: ReturnType<typeof setTimeout> | undefined
  const broken = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new SqlTimeout(timeoutMs)), Math.max(deadline - Date.now(), 0))
    let receivedBytes = 0
    session.wire.stream.on('data', (chunk) => {
      receivedBytes += chunk.byteLength
      if (receivedBytes > RESULT_SIZE_BYTES_MAX) reject(new SqlResultTooLarge(RESULT_SIZE_BYTES_MAX))
    })
    session.wire.on('copyOutResponse', () =>
      reject(new SqlError({ code: '0A000', message: 'COPY TO STDOUT has no receiver here: select the rows instead' })),
    )
    session.wire.on('parameterStatus', ({ parameterName, parameterValue }) => {
      if (parameterName !== 'client_encoding' || parameterValue === 'UTF8') return
      reject(new SqlError({ code: '0A000', message: 'client_encoding must stay UTF8: the answer is JSON' }))
    })
  })
  broken.catch(() => {})
  return { broken, release: () => clearTimeout(timer) }
}

function timeoutMarginMs(timeoutMs: number): number {
  return Math.min(TIMEOUT_MARGIN_MS_MAX, Math.ceil(timeoutMs / 10))
}

function isCancellation(error: unknown): boolean {
  return error instanceof SqlError && error.code === '57014'
}

/** A backend without a caller could still hold locks, so it is not left to notice by itself; the sweep is the net. */
async function endBackend(cluster: Cluster, ref: string, processId: number): Promise<void> {
  const { runner, reader } = projectNames(ref)
  const end = withAdmin(cluster, (admin) =>
    admin.rows(
      `SELECT pg_terminate_backend(pid, ${END_WAIT_MS}) FROM pg_stat_activity WHERE pid = $1 AND usename IN ($2, $3)`,
      [processId, runner, reader],
    ),
  )
  await end.catch(() => {})
}

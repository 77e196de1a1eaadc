import { TOO_MANY_CONNECTIONS, withConnectionSlot } from './connection-limit.ts'
import type { SqlRequest } from './engine.ts'
import { EngineUnavailable, SqlError, SqlResultTooLarge, SqlTimeout } from './engine-errors.ts'
import type { JsonPiece } from './json-bytes.ts'
import { type Outcome, runStatement } from './run-statement.ts'
import type { Login, ParameterStatus, Session, SessionSource } from './session.ts'
import { splitStatements } from './split-statements.ts'
import { parameterText } from './value-encoders.ts'

export const SQL_TIMEOUT_MS_MAX = 300_000
const TIMEOUT_MS_DEFAULT = 60_000
const LOCK_TIMEOUT_MS = 30_000
/** Bounds the bytes that the server sends for one request, and the length of the reply's JSON. */
export const RESULT_SIZE_BYTES_MAX = 16 * 1024 * 1024
/** Each statement of a read-only query takes a round trip. */
const READ_ONLY_STATEMENTS_MAX = 1_000
/** Results up to this size need no memory reservation. */
const SMALL_RESULT_BYTES = 128 * 1024
/** Postgres stops a statement this much earlier than the engine ends the session. */
const TIMEOUT_MARGIN_MS_MAX = 250
/** Interval at which Postgres checks during a statement whether the client is still connected. */
const CALLER_CHECK_INTERVAL_MS = 2_000
const END_WAIT_MS = 2_000
const CONNECTION_WAIT_MS_MAX = 10_000
const CONNECTION_RETRY_MS = 100
/** After a longer wait for memory, a timeout is reported as a lack of memory and not as a slow statement. */
const NOTABLE_MEMORY_WAIT_MS = 1_000

export async function runSql(source: SessionSource, request: SqlRequest): Promise<JsonPiece[]> {
  if (request.query.includes('\0')) {
    throw new SqlError({
      code: '22021',
      message: 'The query contains a NUL character: remove it, SQL text cannot contain one',
    })
  }
  const work = request.readOnly ? runReadOnly : runReadWrite
  return (await withProjectSession(source, request, (session) => work(session, request))).json
}

type SessionRequest = Omit<SqlRequest, 'query' | 'parameters'>

/** Runs `work` in a session of the project, and ends the session at the timeout whatever its statements do. */
export async function withProjectSession<Value>(
  source: SessionSource,
  request: SessionRequest,
  work: (session: Session) => Promise<Value>,
): Promise<Value> {
  const timeoutMs = Math.min(request.timeoutMs ?? TIMEOUT_MS_DEFAULT, SQL_TIMEOUT_MS_MAX)
  const { runner, reader } = source.names
  const waitMs = Math.min(timeoutMs, CONNECTION_WAIT_MS_MAX)
  const runMs = waitMs + timeoutMs + END_WAIT_MS
  return withConnectionSlot(source.userOf(request.readOnly ? reader : runner), { waitMs, runMs }, () =>
    runOnce(source, { ...request, timeoutMs }, work),
  )
}

async function runOnce<Value>(
  source: SessionSource,
  request: SessionRequest & { timeoutMs: number },
  work: (session: Session) => Promise<Value>,
): Promise<Value> {
  const { timeoutMs } = request
  const deadline = Date.now() + timeoutMs
  const session = await openProjectSession(source, request, timeoutMs)
  const guard = guardSession(session, deadline, timeoutMs, source.reserve)
  try {
    const value = await Promise.race([work(session), guard.broken]).finally(guard.release)
    session.close()
    return value
  } catch (error) {
    // After a refused statement the session is still usable, so it can be closed in order.
    if (error instanceof SqlError && !guard.isBroken()) session.close()
    else session.drop()
    const isTimeout =
      error instanceof SqlTimeout || (isCancellation(error) && deadline - Date.now() <= timeoutMarginMs(timeoutMs))
    if (!(error instanceof SqlError)) await source.endBackend(session.processId)
    // The time limit includes the wait, for which the statement is not to blame.
    if (isTimeout && guard.waitedMs() > NOTABLE_MEMORY_WAIT_MS)
      throw new EngineUnavailable('No memory left for results')
    throw isTimeout ? new SqlTimeout(timeoutMs) : error
  }
}

function openProjectSession(source: SessionSource, request: SessionRequest, timeoutMs: number): Promise<Session> {
  const { database, owner, runner, reader } = source.names
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
  return openWithRetry(source, login, Date.now() + Math.min(timeoutMs, CONNECTION_WAIT_MS_MAX))
}

/** Retries while other isolates hold all of the role's connections. */
async function openWithRetry(source: SessionSource, login: Login, until: number): Promise<Session> {
  for (;;) {
    try {
      return await source.open(login)
    } catch (error) {
      const isFull = error instanceof EngineUnavailable && error.code === TOO_MANY_CONNECTIONS
      if (!isFull || Date.now() >= until) throw error
      await new Promise((resolve) => setTimeout(resolve, CONNECTION_RETRY_MS * (0.5 + Math.random())))
    }
  }
}

function runReadWrite(session: Session, { query, parameters = [] }: SqlRequest): Promise<Outcome> {
  const values = parameters.length > 0 ? parameters.map(parameterText) : undefined
  return runStatement(session, { text: query, values }, RESULT_SIZE_BYTES_MAX)
}

/**
 * Runs statements one by one through the extended protocol, in a read-only transaction that already has its snapshot and
 * so cannot become writable. A statement that ends the transaction fails the request; closing the session rolls it back.
 */
async function runReadOnly(session: Session, { query, parameters = [] }: SqlRequest): Promise<Outcome> {
  const values = parameters.map(parameterText)
  const statements =
    values.length > 0
      ? [{ text: query, characterOffset: 0 }]
      : splitStatements(query, { statementsMax: READ_ONLY_STATEMENTS_MAX + 1 })
  if (statements.length > READ_ONLY_STATEMENTS_MAX) {
    throw new SqlError({
      code: '54000',
      message: `A read-only query must have at most ${READ_ONLY_STATEMENTS_MAX} statements`,
    })
  }
  await runStatement(session, { text: 'BEGIN TRANSACTION READ ONLY; SELECT 1' }, RESULT_SIZE_BYTES_MAX)
  let last: Outcome = { json: ['[]'], tag: '' }
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

/** Rejects `broken` when the session must end: at the timeout, on a result too large, on COPY or a changed encoding. */
function guardSession(session: Session, deadline: number, timeoutMs: number, reserve: SessionSource['reserve']) {
  const { wire } = session
  const { stream } = wire
  const { promise: broken, reject: rejectBroken } = Promise.withResolvers<never>()
  let isBroken = false
  const reject = (error: Error) => {
    isBroken = true
    rejectBroken(error)
  }
  const timer = setTimeout(() => reject(new SqlTimeout(timeoutMs)), Math.max(deadline - Date.now(), 0))
  let receivedBytes = 0
  let isReserved = reserve === undefined
  let reservedAt: number | undefined
  let admittedAt: number | undefined
  const onData = (chunk: Uint8Array) => {
    receivedBytes += chunk.byteLength
    if (receivedBytes > RESULT_SIZE_BYTES_MAX) return reject(new SqlResultTooLarge(RESULT_SIZE_BYTES_MAX))
    if (isReserved || receivedBytes <= SMALL_RESULT_BYTES) return
    isReserved = true
    reservedAt = Date.now()
    // Pausing the stream makes Postgres wait until there is memory.
    stream.pause()
    reserve?.().then(() => {
      admittedAt = Date.now()
      stream.resume()
    }, reject)
  }
  const onCopy = () =>
    reject(new SqlError({ code: '0A000', message: 'COPY TO STDOUT is not supported: select the rows instead' }))
  const onParameter = ({ parameterName, parameterValue }: ParameterStatus) => {
    if (parameterName !== 'client_encoding' || parameterValue === 'UTF8') return
    reject(new SqlError({ code: '0A000', message: 'client_encoding must be UTF8: the result is JSON' }))
  }
  stream.on('data', onData)
  wire.on('copyOutResponse', onCopy)
  wire.on('parameterStatus', onParameter)
  broken.catch(() => {})
  return {
    broken,
    isBroken: () => isBroken,
    /** Time for which the result waited for memory, or has waited so far. */
    waitedMs: () => (reservedAt === undefined ? 0 : (admittedAt ?? Date.now()) - reservedAt),
    /** Removes the listeners: the session may be reused. */
    release() {
      clearTimeout(timer)
      stream.removeListener('data', onData)
      wire.removeListener('copyOutResponse', onCopy)
      wire.removeListener('parameterStatus', onParameter)
    },
  }
}

function timeoutMarginMs(timeoutMs: number): number {
  return Math.min(TIMEOUT_MARGIN_MS_MAX, Math.ceil(timeoutMs / 10))
}

function isCancellation(error: unknown): boolean {
  return error instanceof SqlError && error.code === '57014'
}

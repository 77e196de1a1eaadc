import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { errorCode, errorMessage } from '../../dev/start-error.ts'
import type { JsonPiece } from '../../src/engine/json-bytes.ts'
import { JSON_BYTES, SEPARATE_VALUE } from '../../src/engine/separate-value.ts'
import type { Caller } from '../gateway/gateway.ts'
import { type Instances, InstanceUnavailable, UnknownInstance } from '../instances/types.ts'
import { isObject, parseBody, readWithin } from './body.ts'
import type { Account } from './budget.ts'
import type { CallerOf } from './callers.ts'
import type { SqlLimits } from './limits.ts'
import { UNPACED_BYTES, waitToTransfer } from './pace.ts'
import { clientGone, Refusal } from './refusal.ts'
import { firstWord, type Reply, type ReplyFormat } from './reply.ts'
import type { Lease, SessionState, Sessions } from './sessions.ts'
import type { Target } from './target.ts'
import { MEMORY_FACTOR, type Outcome, runTextQueries, type Work } from './text-query.ts'

export interface SqlOptions {
  instances: Instances
  targetOf(headers: IncomingHttpHeaders): Target
  checkLogin(target: Target, caller: Caller): Promise<void>
  callerOf: CallerOf
  sessions: Sessions
  openAccount(name: string): Account
  openBodyAccount(name: string): Account
  limits: SqlLimits
}

/** Answers POST /sql: one statement, or several in one transaction. */
export function answerSql(options: SqlOptions) {
  const { targetOf, openAccount, openBodyAccount, limits } = options

  return async function sql(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method !== 'POST' || req.url !== '/sql') return void res.writeHead(404).end()
    let account: Account | undefined
    let bodyAccount: Account | undefined
    try {
      const target = targetOf(req.headers)
      await checkCaller(options, target, req)
      account = openAccount(target.name)
      bodyAccount = openBodyAccount(target.name)
      const work = { ...(await readWork(req, bodyAccount, limits)), account }
      // The rules or the password may have changed while the body arrived or the request waited for its session.
      const recheck = () => checkCaller(options, target, req)
      const reply = await runInSession(options.sessions, target, { work, recheck }, res)
      await sendReply(res, reply, account, limits.sendTimeoutMs)
    } catch (error) {
      send(res, error instanceof Refusal ? error.status : 400, JSON.stringify(toErrorReply(error)))
    } finally {
      account?.hold(0)
      bodyAccount?.hold(0)
    }
  }
}

/** Authenticates the caller, which must happen before the body is read, and again before its statements run. */
async function checkCaller({ instances, checkLogin, callerOf }: SqlOptions, target: Target, req: IncomingMessage) {
  const { name, role, isTrusted } = target
  const instance = instances.find(name)
  if (isTrusted && !instance) throw new UnknownInstance(name)
  if (isTrusted) return
  if (!instance) throw new Refusal('28P01', `password authentication failed for user "${role}"`)
  await checkLogin(target, callerOf(req, false))
}

async function readWork(req: IncomingMessage, account: Account, limits: SqlLimits): Promise<Omit<Work, 'account'>> {
  const { statements, isBatch } = parseBody(await readWithin(req, account, limits), limits)
  const begin = isBatch ? beginStatement(req.headers) : undefined
  return { statements, begin, bytesMax: limits.resultBytesMax, format: formatOf(req.headers, isBatch, limits) }
}

function formatOf(headers: IncomingHttpHeaders, isBatch: boolean, { resultBytesMax }: SqlLimits): ReplyFormat {
  for (const name of ['neon-raw-text-output', 'neon-array-mode']) {
    if (headers[name] !== 'true') throw new Refusal('0A000', `the header ${name} must be true: rows are arrays of text`)
  }
  return { isBatch, bytesMax: MEMORY_FACTOR * resultBytesMax, separate: separateOf(headers) }
}

/** Finds the value to send after the JSON: it need not be escaped, and its receiver can pass it on without parsing it. */
function separateOf(headers: IncomingHttpHeaders): ReplyFormat['separate'] {
  const [, statement, column] = /^(\d+)\.(\d+)$/.exec(String(headers[SEPARATE_VALUE])) ?? []
  return column === undefined ? undefined : { statement: Number(statement), column: Number(column) }
}

interface Job {
  work: Work
  /** Refuses a caller that may no longer log in. From then on, a change that refuses it also aborts the session. */
  recheck(): Promise<void>
}

async function runInSession(
  sessions: Sessions,
  target: Target,
  { work, recheck }: Job,
  res: ServerResponse,
): Promise<Reply> {
  let lease = await sessions.acquire(target, res)
  let state: SessionState = 'broken'
  try {
    await recheck()
    let outcome: Outcome
    try {
      outcome = await runWithReplanning(lease, work, res)
    } catch (error) {
      if (!isUnsent(error, lease, work)) throw error
      lease.release('broken')
      lease = await sessions.acquire(target, res)
      outcome = await runWithReplanning(lease, work, res)
    }
    state = sessionStateAfter(outcome, lease)
    return outcome.reply
  } catch (error) {
    state = isStatementError(error) ? 'failed' : 'broken'
    throw error
  } finally {
    lease.release(res.destroyed ? 'broken' : state)
  }
}

/** Bytes that a socket accepts at once: a smaller request is sent as a whole or not at all. */
const WRITE_BYTES = 64 * 1024

/** Whether the request did not reach the server: the connection was closed before the first byte was written. */
function isUnsent(error: unknown, { session }: Lease, { statements }: Work): boolean {
  if (!session.isReused) return false
  if (errorMessage(error).endsWith('is not queryable')) return true
  return errorCode(error) === 'EPIPE' && JSON.stringify(statements).length * 2 < WRITE_BYTES
}

/** Runs the statements, once more if Postgres refuses a prepared statement whose columns have changed: nothing was executed then. */
async function runWithReplanning(lease: Lease, work: Work, res: ServerResponse): Promise<Outcome> {
  try {
    return await run(lease, work, res)
  } catch (error) {
    if (!isObject(error) || error.routine !== 'RevalidateCachedQuery') throw error
    lease.session.plans?.clear()
    if (work.begin) await lease.session.client.query('ROLLBACK')
    return run(lease, work, res)
  }
}

async function run({ session }: Lease, work: Work, res: ServerResponse): Promise<Outcome> {
  if (res.destroyed) throw clientGone()
  res.once('close', session.abort)
  try {
    return await runTextQueries(session, work)
  } finally {
    res.off('close', session.abort)
  }
}

/** Commands that leave no session state. SET, LISTEN, CREATE TEMP TABLE, BEGIN and similar commands do or might. */
const STATELESS = new Set([
  '',
  'SELECT',
  'INSERT',
  'UPDATE',
  'DELETE',
  'MERGE',
  'EXPLAIN',
  'SET CONSTRAINTS',
  'ROLLBACK',
])

function sessionStateAfter({ tags, isReset }: Outcome, { session }: Lease): SessionState {
  const leavesNone = (tag: string) => STATELESS.has(firstWord(tag)) || STATELESS.has(tag)
  const isStateless = session.transactionStatus() === 'I' && tags.every(leavesNone)
  if (!isStateless) return 'broken'
  return isReset ? 'reset' : 'used'
}

/** SQLSTATEs that mean that our list of prepared statements is wrong: a user's function deallocated or prepared some. */
const PLANS_LOST = new Set<unknown>(['26000', '42P05'])

// An error of severity FATAL ends the connection, so only ERROR leaves a usable session.
function isStatementError(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof Refusal) return false
  if (!('severity' in error) || error.severity !== 'ERROR') return false
  return !('code' in error && PLANS_LOST.has(error.code))
}

const ISOLATION: Record<string, string> = {
  ReadUncommitted: 'READ UNCOMMITTED',
  ReadCommitted: 'READ COMMITTED',
  RepeatableRead: 'REPEATABLE READ',
  Serializable: 'SERIALIZABLE',
}

function beginStatement(headers: IncomingHttpHeaders): string {
  const isolation = headers['neon-batch-isolation-level']
  const words = ['BEGIN']
  if (isolation) {
    const level = ISOLATION[String(isolation)]
    if (!level) throw new Refusal('22023', 'the isolation level is unknown')
    words.push('ISOLATION LEVEL', level)
  }
  if (headers['neon-batch-read-only'] === 'true') words.push('READ ONLY')
  if (headers['neon-batch-deferrable'] === 'true') words.push('DEFERRABLE')
  return words.join(' ')
}

const ERROR_FIELDS = [
  ...['code', 'severity', 'detail', 'hint', 'position', 'internalPosition', 'internalQuery', 'where', 'schema'],
  ...['table', 'column', 'dataType', 'constraint', 'file', 'line', 'routine'],
]

function toErrorReply(error: unknown): Record<string, unknown> {
  const known = isObject(error) ? error : {}
  const fields = Object.fromEntries(ERROR_FIELDS.map((name) => [name, known[name] ?? null]))
  if (error instanceof InstanceUnavailable) fields.code = '57P03'
  if (error instanceof UnknownInstance) fields.code = '08001'
  // The code of a lost connection is one of Node, not an SQLSTATE, although EPIPE looks like one.
  if ('syscall' in known) fields.code = null
  return { message: errorMessage(error), ...fields }
}

export function send(res: ServerResponse, status: number, text: string, headers: Record<string, number> = {}) {
  if (res.destroyed || res.headersSent) return
  res.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers })
  res.end(text)
}

/** A complete reply, as text or in parts. */
type SentReply = Pick<Reply, 'text' | 'bytes'> & { parts: JsonPiece[]; jsonBytes?: number | undefined }

/** Sends the reply. A large reply counts against the memory budget until its client has read it. */
export async function sendReply(
  res: ServerResponse,
  { text, parts, bytes, jsonBytes }: SentReply,
  account: Account,
  timeoutMs: number,
) {
  const headers: Record<string, number> = jsonBytes === undefined ? {} : { [JSON_BYTES]: jsonBytes }
  if (parts.length === 0) return send(res, 200, text, headers)
  const deadline = setTimeout(() => res.destroy(), timeoutMs)
  res.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes, ...headers })
  await pipeline(paced(parts, bytes, account), res).finally(() => clearTimeout(deadline))
}

/** Yields the parts at the pace of large results, and releases the memory of each that the socket has taken. */
async function* paced(parts: JsonPiece[], bytes: number, account: Account): AsyncGenerator<JsonPiece> {
  let left = bytes
  account.hold(left)
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    yield part
    const size = Buffer.byteLength(part)
    left -= size
    account.hold(left)
    if (bytes > UNPACED_BYTES) await waitToTransfer(size)
  }
}

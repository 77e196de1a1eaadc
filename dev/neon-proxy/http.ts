import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { errorMessage } from '../start-error.ts'
import type { Connections, Lease, Leaving } from './connections.ts'
import { runTextQueries, type Statement, type TextResult, type Work } from './text-query.ts'
import { toValues } from './values.ts'

export interface SqlOptions {
  connections: Connections
  bodyBytesMax: number
  resultBytesMax: number
}

class BadRequest extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** Answers POST /sql: one statement, or several in one transaction. */
export function answerSql({ connections, bodyBytesMax, resultBytesMax }: SqlOptions) {
  return async function sql(req: IncomingMessage, res: ServerResponse): Promise<void> {
    let lease: Lease | undefined
    let leaving: Leaving = 'broken'
    try {
      const connectionString = header(req.headers, 'neon-connection-string')
      if (!connectionString) throw new BadRequest(400, 'the header Neon-Connection-String is missing')
      const { statements, isBatch } = parseBody(await readBody(req, bodyBytesMax))
      const begin = isBatch ? beginStatement(req.headers) : undefined
      lease = await connections.acquire(connectionString)
      const { results, isReset } = await runOnFreshPlans(lease, { statements, begin, bytesMax: resultBytesMax }, res)
      const replies = results.map((result) => toReply(result, req.headers))
      const leavesNone = lease.transactionStatus() === 'I' && results.every(leavesNoState)
      if (leavesNone) leaving = isReset ? 'reset' : 'used'
      send(res, 200, isBatch ? { results: replies } : replies[0])
    } catch (error) {
      leaving = isStatementError(error) ? 'failed' : 'broken'
      send(res, error instanceof BadRequest ? error.status : 400, toErrorReply(error))
    } finally {
      lease?.release(res.destroyed ? 'broken' : leaving)
    }
  }
}

/** Postgres refuses a prepared statement whose columns have changed since; nothing has happened then, so we ask again. */
async function runOnFreshPlans(lease: Lease, work: Work, res: ServerResponse) {
  try {
    return await run(lease, work, res)
  } catch (error) {
    if (!isObject(error) || error.routine !== 'RevalidateCachedQuery') throw error
    lease.plans?.clear()
    if (work.begin) await lease.client.query('ROLLBACK')
    return run(lease, work, res)
  }
}

async function run(lease: Lease, work: Work, res: ServerResponse) {
  if (res.destroyed) throw new BadRequest(400, 'the client went away')
  res.once('close', lease.abort)
  try {
    return await runTextQueries(lease, work)
  } finally {
    res.off('close', lease.abort)
  }
}

/** Reading and writing rows changes no session; SET, LISTEN, CREATE TEMP TABLE, BEGIN and their like do or might. */
const STATELESS = new Set(['', 'SELECT', 'INSERT', 'UPDATE', 'DELETE', 'MERGE'])

function leavesNoState({ tag }: TextResult): boolean {
  return STATELESS.has(firstWord(tag))
}

/** The names of prepared statements are not what we think they are: somebody's function deallocated or prepared some. */
const PLANS_LOST = new Set<unknown>(['26000', '42P05'])

// An error of severity FATAL comes with the end of the connection.
function isStatementError(error: unknown): boolean {
  if (!(error instanceof Error) || !('severity' in error) || error.severity !== 'ERROR') return false
  return !('code' in error && PLANS_LOST.has(error.code))
}

function header(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value[0] : value
}

function readBody(req: IncomingMessage, bytesMax: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const refuse = () => reject(new BadRequest(413, `the body is larger than ${bytesMax} bytes`))
    if (Number(req.headers['content-length'] ?? 0) > bytesMax) return refuse()
    const chunks: Buffer[] = []
    let bytes = 0
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > bytesMax) refuse()
      else chunks.push(chunk)
    })
    req.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')))
    req.on('error', reject)
  })
}

function parseBody(text: string): { statements: Statement[]; isBatch: boolean } {
  const body = parseJson(text)
  if (isObject(body) && Array.isArray(body.queries)) {
    return { statements: body.queries.map(toStatement), isBatch: true }
  }
  return { statements: [toStatement(body)], isBatch: false }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new BadRequest(400, 'the body is not JSON')
  }
}

function toStatement(value: unknown): Statement {
  if (!isObject(value) || typeof value.query !== 'string') throw new BadRequest(400, 'a statement needs a query')
  const { query, params = [] } = value
  if (!Array.isArray(params)) throw new BadRequest(400, 'params must be an array')
  return { query, params }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

const ISOLATION: Record<string, string> = {
  ReadUncommitted: 'READ UNCOMMITTED',
  ReadCommitted: 'READ COMMITTED',
  RepeatableRead: 'REPEATABLE READ',
  Serializable: 'SERIALIZABLE',
}

function beginStatement(headers: IncomingHttpHeaders): string {
  const isolation = header(headers, 'neon-batch-isolation-level')
  const words = ['BEGIN']
  if (isolation) {
    const level = ISOLATION[isolation]
    if (!level) throw new BadRequest(400, 'the isolation level is unknown')
    words.push('ISOLATION LEVEL', level)
  }
  if (header(headers, 'neon-batch-read-only') === 'true') words.push('READ ONLY')
  if (header(headers, 'neon-batch-deferrable') === 'true') words.push('DEFERRABLE')
  return words.join(' ')
}

function toReply({ tag, fields, rows }: TextResult, headers: IncomingHttpHeaders) {
  const asArray = header(headers, 'neon-array-mode') === 'true'
  const raw = header(headers, 'neon-raw-text-output') === 'true'
  const count = /\d+$/.exec(tag)
  return {
    command: firstWord(tag),
    rowCount: count ? Number(count[0]) : null,
    fields,
    rows: raw && asArray ? rows : toValues({ fields, rows, raw, asArray }),
    rowAsArray: asArray,
    viaNeonProxy: true,
  }
}

function firstWord(tag: string): string {
  const end = tag.indexOf(' ')
  return end < 0 ? tag : tag.slice(0, end)
}

const ERROR_FIELDS = [
  ...['code', 'severity', 'detail', 'hint', 'position', 'internalPosition', 'internalQuery', 'where', 'schema'],
  ...['table', 'column', 'dataType', 'constraint', 'file', 'line', 'routine'],
]

function toErrorReply(error: unknown): Record<string, unknown> {
  const known = isObject(error) ? error : {}
  const fields = ERROR_FIELDS.map((name) => [name, known[name] ?? null])
  return { message: errorMessage(error), ...Object.fromEntries(fields) }
}

function send(res: ServerResponse, status: number, body: unknown) {
  if (res.destroyed) return
  const text = JSON.stringify(body)
  res.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
  res.end(text)
}

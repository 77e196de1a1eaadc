import type { IncomingMessage } from 'node:http'
import { parseJson } from '../../src/platform/http/parse-json.ts'
import type { Account } from './budget.ts'
import type { SqlLimits } from './limits.ts'
import { clientGone, Refusal } from './refusal.ts'
import type { Statement } from './text-query.ts'

/** Bodies up to this size are read without taking memory of the budget. */
const SMALL_BYTES = 64 * 1024
/** Estimated memory per byte of a body: its text, and the values in it. */
const MEMORY_FACTOR = 2

const memoryFor = (bytes: number) => (bytes > SMALL_BYTES ? bytes * MEMORY_FACTOR : 0)

/** Reads the body of a request. A large one waits until the budget has room for it. */
export async function readWithin(req: IncomingMessage, account: Account, limits: SqlLimits): Promise<string> {
  const bytesMax = limits.bodyBytesMax
  const announced = Number(req.headers['content-length'] ?? bytesMax)
  if (announced > bytesMax) throw tooLarge(bytesMax)
  const memory = memoryFor(announced)
  if (memory > 0) await account.reserve(memory)
  const text = await readBody(req, limits)
  // The length of a body without `Content-Length` is known only now.
  account.hold(memoryFor(text.length))
  return text
}

const tooLarge = (bytesMax: number) => new Refusal('54000', `the body is larger than ${bytesMax} bytes`, 413)

export async function readBody(req: IncomingMessage, limits: SqlLimits): Promise<string> {
  const { bodyBytesMax: bytesMax, bodyTimeoutMs } = limits
  // A request that has been cut off emits no further events.
  if (req.destroyed) throw clientGone()
  const deadline = setTimeout(() => req.destroy(clientGone()), bodyTimeoutMs)
  return new Promise<string>((resolve, reject) => {
    const refuse = () => reject(tooLarge(bytesMax))
    if (Number(req.headers['content-length'] ?? 0) > bytesMax) return refuse()
    let chunks: Buffer[] = []
    let bytes = 0
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= bytesMax) return chunks.push(chunk)
      chunks = []
      refuse()
    })
    req.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')))
    req.on('error', reject)
  }).finally(() => clearTimeout(deadline))
}

/** Parses one statement, or a batch of `queries`. */
export function parseBody(text: string, { statementsMax }: SqlLimits): { statements: Statement[]; isBatch: boolean } {
  const body = parseJson(text)
  if (body === undefined) throw new Refusal('22023', 'the body is not JSON')
  if (isObject(body) && Array.isArray(body.queries)) {
    if (body.queries.length > statementsMax)
      throw new Refusal('54000', `the batch has more than ${statementsMax} statements`)
    return { statements: body.queries.map(toStatement), isBatch: true }
  }
  return { statements: [toStatement(body)], isBatch: false }
}

function toStatement(value: unknown): Statement {
  if (!isObject(value) || typeof value.query !== 'string') throw new Refusal('22023', 'a statement needs a query')
  const { query, params = [] } = value
  if (!Array.isArray(params)) throw new Refusal('22023', 'params must be an array')
  return { query, params }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

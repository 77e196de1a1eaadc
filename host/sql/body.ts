import type { IncomingMessage } from 'node:http'
import { openValueCounter } from '../../src/platform/http/count-json-values.ts'
import { parseJson } from '../../src/platform/http/parse-json.ts'
import type { Account } from './budget.ts'
import type { SqlLimits } from './limits.ts'
import { clientGone, Refusal } from './refusal.ts'
import type { Statement } from './text-query.ts'

/** Bodies up to this size are read without taking memory of the budget. */
const SMALL_BYTES = 64 * 1024
/** Estimated memory per byte of a body: its text, and the texts in it. */
const MEMORY_FACTOR = 2
/** Estimated memory of an array, an object or a place in one. */
const VALUE_BYTES = 64
/** Postgres counts parameters in 16 bits. */
const PARAMS_MAX = 65_535

const memoryFor = (bytes: number, values = 0) =>
  bytes > SMALL_BYTES ? bytes * MEMORY_FACTOR + values * VALUE_BYTES : 0

/** Reads the body of a request. A large one waits until the budget has room for it. */
export async function readWithin(req: IncomingMessage, account: Account, limits: SqlLimits): Promise<string> {
  const bytesMax = limits.bodyBytesMax
  const announced = Number(req.headers['content-length'] ?? bytesMax)
  if (announced > bytesMax) throw tooLarge(bytesMax)
  const memory = memoryFor(announced)
  if (memory > 0) await account.reserve(memory)
  const { text, values } = await readBody(req, limits)
  // The values, and the length of a body without `Content-Length`, are known only now.
  account.hold(memoryFor(text.length, values))
  return text
}

const tooMany = (valuesMax: number) => new Refusal('54000', `the body has more than ${valuesMax} values`)

const tooLarge = (bytesMax: number) => new Refusal('54000', `the body is larger than ${bytesMax} bytes`, 413)

async function readBody(req: IncomingMessage, limits: SqlLimits): Promise<{ text: string; values: number }> {
  const { bodyBytesMax: bytesMax, bodyValuesMax, bodyTimeoutMs } = limits
  // A request that has been cut off emits no further events.
  if (req.destroyed) throw clientGone()
  const deadline = setTimeout(() => req.destroy(clientGone()), bodyTimeoutMs)
  const countValues = openValueCounter()
  return new Promise<{ text: string; values: number }>((resolve, reject) => {
    if (Number(req.headers['content-length'] ?? 0) > bytesMax) return reject(tooLarge(bytesMax))
    let chunks: Buffer[] = []
    let bytes = 0
    let values = 0
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= bytesMax && values <= bodyValuesMax) {
        values = countValues(chunk)
        return chunks.push(chunk)
      }
      chunks = []
      reject(bytes > bytesMax ? tooLarge(bytesMax) : tooMany(bodyValuesMax))
    })
    req.on('end', () => {
      if (values > bodyValuesMax) return reject(tooMany(bodyValuesMax))
      resolve({ text: Buffer.concat(chunks).toString('utf8'), values })
    })
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
  if (params.length > PARAMS_MAX) throw new Refusal('54000', `a statement has more than ${PARAMS_MAX} params`)
  return { query, params }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

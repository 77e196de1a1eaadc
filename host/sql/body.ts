import type { IncomingMessage } from 'node:http'
import { Refusal } from './refusal.ts'
import type { Statement } from './text-query.ts'

export function readBody(req: IncomingMessage, bytesMax: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const refuse = () => reject(new Refusal('54000', `the body is larger than ${bytesMax} bytes`, 413))
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
  })
}

/** Parses one statement, or a batch of `queries`. */
export function parseBody(text: string): { statements: Statement[]; isBatch: boolean } {
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
    throw new Refusal('22023', 'the body is not JSON')
  }
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

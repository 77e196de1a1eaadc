import type { IncomingMessage, ServerResponse } from 'node:http'
import * as z from 'zod'
import { parseJson } from '../../src/platform/http/parse-json.ts'

const BODY_BYTES_MAX = 256 * 1024

/** A failure whose code and message are sent to the control plane. */
export class ApiFailure extends Error {
  readonly status: number
  readonly code: string
  readonly refusals: readonly unknown[] | undefined

  constructor(status: number, code: string, message: string, refusals?: readonly unknown[]) {
    super(message)
    this.status = status
    this.code = code
    this.refusals = refusals
  }
}

export interface Reply {
  status: number
  /** A string is sent in the text format of Prometheus, anything else as JSON. */
  body?: unknown
}

export interface Call {
  /** Name of the instance. */
  name: string
  /** Values of the named parts of the path. */
  params: Record<string, string>
  query: URLSearchParams
  body<Shape extends z.ZodType>(shape: Shape): Promise<z.infer<Shape>>
}

export async function readBody(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of req as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > BODY_BYTES_MAX) throw new ApiFailure(413, 'too_large', 'The body is larger than 256 KiB')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

export function parseBody<Shape extends z.ZodType>(text: string, shape: Shape): z.infer<Shape> {
  const body = text === '' ? {} : parseJson(text)
  if (body === undefined) throw new ApiFailure(400, 'invalid', 'The body is not JSON')
  const parsed = shape.safeParse(body)
  if (parsed.success) return parsed.data
  throw new ApiFailure(400, 'invalid', z.prettifyError(parsed.error))
}

export function send(res: ServerResponse, { status, body }: Reply): void {
  if (res.destroyed) return
  const isText = typeof body === 'string'
  const text = isText ? body : body === undefined ? '' : JSON.stringify(body)
  const type = isText ? 'text/plain; version=0.0.4' : 'application/json'
  res.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) })
  res.end(text)
}

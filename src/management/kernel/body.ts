import type { Context, MiddlewareHandler } from 'hono'
import * as z from 'zod'
import { BodyStalled } from '../../platform/blobs/chunk-reader.ts'
import { MemoryExhausted, reserveMemory } from '../../platform/blobs/memory-budget.ts'
import { readParts } from '../../platform/blobs/part-reader.ts'
import { ApiError, type ErrorCode } from '../../platform/http/error.ts'
import { withTimeout } from '../../platform/timeout.ts'
import type { AppEnv } from './app-env.ts'

/** Parser and schema for one content type. */
interface Form<T = unknown> {
  schema: z.ZodType<T>
  read(bytes: Bytes, contentType: string): Promise<unknown>
  /** Selects the form by the bytes, for content types under which clients send more than one form. */
  selectForm?(bytes: Bytes): Form<T>
}
type Bytes = Uint8Array<ArrayBuffer>

const MIB = 1024 * 1024

/** A body that is received as a whole, in one of several forms. */
export interface BufferedBody<T = unknown> {
  /** Forms by content type. */
  forms: Record<string, Form<T>>
  sizeBytesMax: number
  /** Whether the request may omit the body. */
  optional: boolean
}

/** Whether the body counts against the memory budget until the request is answered. It may then arrive slowly. */
const isCounted = ({ sizeBytesMax }: Pick<BufferedBody, 'sizeBytesMax'>): boolean => sizeBytesMax > MIB

interface Options {
  sizeBytesMax: number
  optional?: boolean
}

export const bufferedBody = <const F extends Record<string, Form>>(
  forms: F,
  { sizeBytesMax, optional = false }: Options,
): BufferedBody<F[string] extends Form<infer T> ? T : never> =>
  ({ forms, sizeBytesMax, optional }) as BufferedBody<F[string] extends Form<infer T> ? T : never>

/** A body of JSON only, which is optional if its schema is. */
export const jsonBody = (schema: z.ZodType, sizeBytesMax = MIB): BufferedBody => ({
  forms: { 'application/json': asJson(schema) },
  sizeBytesMax,
  optional: schema instanceof z.ZodOptional,
})

export const isBufferedBody = (body: unknown): body is BufferedBody =>
  typeof body === 'object' && body !== null && 'forms' in body && 'sizeBytesMax' in body

/** Decodes UTF-8 without its byte order mark. Throws if the bytes are not valid UTF-8: replacement characters must not be stored. */
export const decodeUtf8 = (bytes: ArrayBuffer | Bytes): string =>
  new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)

export const asJson = <T>(schema: z.ZodType<T>): Form<T> => ({
  schema,
  async read(bytes) {
    try {
      return JSON.parse(decodeUtf8(bytes))
    } catch (cause) {
      throw new ApiError('bad_request.malformed_json', { cause })
    }
  },
})

/** Passes the bytes on unchanged. */
export const asBytes: Form<Bytes> = {
  schema: z.custom<Bytes>((value) => value instanceof Uint8Array).meta({ type: 'string', format: 'binary' }),
  read: async (bytes) => bytes,
}

/** Accepts text, or a JSON object sent with a text content type. Source code is never a JSON object. */
export const asTextOrJson = <T>(json: Form<T>): Form<T | Bytes> => ({
  ...asBytes,
  selectForm: (bytes) => (isJsonObject(bytes) ? json : asBytes),
})

function isJsonObject(bytes: Bytes): boolean {
  try {
    const value: unknown = JSON.parse(decodeUtf8(bytes))
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

/** Multipart form. Fields that the schema declares as arrays are files; every other field is text, even if it was sent as a file. */
export const asMultipart = <S extends z.ZodObject>(schema: S): Form<z.output<S>> => ({
  schema: schema as unknown as z.ZodType<z.output<S>>,
  async read(bytes, contentType) {
    const parts = await parseMultipart(bytes, contentType)
    const entries = Object.entries(schema.shape).map(async ([name, field]) => {
      if (field instanceof z.ZodArray) return [name, parts.getAll(name)]
      const [part] = parts.getAll(name)
      return [name, part instanceof File ? await part.text() : part]
    })
    return Object.fromEntries(await Promise.all(entries))
  },
})

/** URL-encoded form. A repeated name becomes an array, which the schema of a text field refuses. */
export const asUrlEncoded = <S extends z.ZodObject>(schema: S): Form<z.output<S>> => ({
  schema: schema as unknown as z.ZodType<z.output<S>>,
  async read(bytes) {
    const fields = new Map<string, string | string[]>()
    for (const [name, value] of new URLSearchParams(decodeFields(bytes))) {
      const known = fields.get(name)
      if (Array.isArray(known)) known.push(value)
      else fields.set(name, known === undefined ? value : [known, value])
    }
    return Object.fromEntries(fields)
  },
})

function decodeFields(bytes: Bytes): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    throw new ApiError('bad_request.malformed_body', { detail: 'it is not valid UTF-8', cause })
  }
}

/** A form field that contains JSON. */
export const jsonPart = <S extends z.ZodType>(schema: S) => z.preprocess(parseJson, schema)

function parseJson(text: unknown): unknown {
  try {
    return JSON.parse(String(text))
  } catch {
    return text
  }
}

async function parseMultipart(bytes: Bytes, contentType: string): Promise<FormData> {
  try {
    return await new Response(bytes, { headers: { 'content-type': contentType } }).formData()
  } catch (cause) {
    throw new ApiError('bad_request.malformed_body', { detail: 'it is not a complete multipart form', cause })
  }
}

/** Number of copies of a body in memory: the received bytes, the decoded text and the parsed value. */
const COPIES = 3

/** Buffers the body, parses it by its content type and passes the validated value to the handler. An empty one counts as omitted. */
export function readBody(body: BufferedBody, check: (schema: z.ZodType, value: unknown) => unknown) {
  return async function readBody(c, next) {
    const type = c.req.header('content-type')
    const requiredForm = body.optional ? undefined : formFor(body, type)
    const release = await reserveBodyMemory(c, body)
    try {
      const bytes = await readBytes(c, body)
      if (body.optional && bytes.length === 0) return await next()
      const declaredForm = requiredForm ?? formFor(body, type)
      const form = declaredForm.selectForm?.(bytes) ?? declaredForm
      const value = await form.read(bytes, type ?? '')
      c.set('body', check(form.schema, value))
      await next()
    } finally {
      release()
    }
  } satisfies MiddlewareHandler<AppEnv>
}

function formFor({ forms }: BufferedBody, type: string | undefined): Form {
  const [essence = ''] = (type ?? '').toLowerCase().split(';')
  const form = forms[essence.trim().replace(/^application\/[\w.-]+\+json$/, 'application/json')]
  if (form) return form
  const given = type ? `its content-type is ${type}` : 'it has no content-type'
  throw new ApiError('unsupported_media_type', { detail: `send ${Object.keys(forms).join(' or ')}; ${given}` })
}

async function reserveBodyMemory(c: Context<AppEnv>, body: BufferedBody): Promise<() => void> {
  const { sizeBytesMax } = body
  const declared = Number(c.req.header('content-length') ?? sizeBytesMax)
  if (declared > sizeBytesMax) throw tooLarge(sizeBytesMax)
  if (!isCounted(body) || declared <= MIB) return () => {}
  const owner = `projects/${c.var.access.project?.ref}`
  const memory = await reserveMemory(COPIES * declared, owner).catch((cause) => {
    throw cause instanceof MemoryExhausted ? new ApiError('service_unavailable.memory', { cause }) : cause
  })
  return memory.release
}

/** Receives a counted body within a time for each chunk, and any other within that time. */
async function readBytes({ req, var: { ctx } }: Context<AppEnv>, body: BufferedBody) {
  const { sizeBytesMax } = body
  if (!req.raw.body) return new Uint8Array()
  const bytesMax = Number(req.header('content-length') ?? sizeBytesMax)
  const seconds = ctx.config.BODY_TIMEOUT_SECONDS
  const parts = readParts(req.raw.body, { bytesMax, chunkMsMax: seconds * 1000 })
  const received = parts.next(bytesMax + 1).catch((cause) => {
    if (cause instanceof BodyStalled) throw bodyTimeout(seconds, { cause })
    throw new ApiError('bad_request.malformed_body', { detail: 'it ended before it was complete', cause })
  })
  const bytes = await (isCounted(body) ? received : withTimeout(seconds * 1000, received, () => bodyTimeout(seconds)))
  if (bytes.length <= sizeBytesMax) return bytes
  parts.discard()
  throw tooLarge(sizeBytesMax)
}

const tooLarge = (sizeBytesMax: number) =>
  new ApiError('payload_too_large', { detail: `at most ${sizeBytesMax} bytes` })

export const bufferedBodyErrors = (body: BufferedBody): readonly ErrorCode[] => [
  ...('application/json' in body.forms ? (['bad_request.malformed_json'] as const) : []),
  'bad_request.malformed_body',
  'payload_too_large',
  'unsupported_media_type',
  ...memoryErrors(body),
]

/** The errors of a body that counts against the memory budget. */
export const memoryErrors = (body: Pick<BufferedBody, 'sizeBytesMax'>): readonly ErrorCode[] =>
  isCounted(body) ? ['service_unavailable.memory'] : []

export const bodyTimeout = (seconds: number, options: { cause?: unknown } = {}) =>
  new ApiError('request_timeout', { detail: `the body was not received within ${seconds} s`, ...options })

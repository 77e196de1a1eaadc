import type { Context, MiddlewareHandler } from 'hono'
import * as z from 'zod'
import { BodyStalled, readParts } from '../../platform/blobs/chunk-reader.ts'
import { MemoryExhausted, reserveMemory } from '../../platform/blobs/memory-budget.ts'
import { ApiError, type ErrorCode } from '../../platform/http/error.ts'
import type { AppEnv } from './app-env.ts'

/** How bytes of one content type are read before `schema` checks what they say. */
interface Form<T = unknown> {
  schema: z.ZodType<T>
  read(bytes: Bytes, contentType: string): Promise<unknown>
  /** The form that the bytes are in, where clients send more than one under the same content type. */
  actual?(bytes: Bytes): Form<T>
}
type Bytes = Uint8Array<ArrayBuffer>

/** A body that is no JSON, or JSON among others: in memory, and counted there, until the request has been answered. */
export interface BufferedBody<T = unknown> {
  /** By content type. */
  forms: Record<string, Form<T>>
  sizeBytesMax: number
  /** It may be left out. */
  optional: boolean
}

interface Options {
  sizeBytesMax: number
  optional?: boolean
}

export const bufferedBody = <const F extends Record<string, Form>>(
  forms: F,
  { sizeBytesMax, optional = false }: Options,
): BufferedBody<F[string] extends Form<infer T> ? T : never> =>
  ({ forms, sizeBytesMax, optional }) as BufferedBody<F[string] extends Form<infer T> ? T : never>

export const isBufferedBody = (body: unknown): body is BufferedBody =>
  typeof body === 'object' && body !== null && 'forms' in body && 'sizeBytesMax' in body

/** Throws where it is no UTF-8: else other letters would be stored than were sent. A mark of its byte order is left out. */
export const decode = (bytes: ArrayBuffer | Bytes): string =>
  new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)

export const asJson = <T>(schema: z.ZodType<T>): Form<T> => ({
  schema,
  async read(bytes) {
    try {
      return JSON.parse(decode(bytes))
    } catch (cause) {
      throw new ApiError('bad_request.malformed_json', { cause })
    }
  },
})

/** The bytes themselves. */
export const asBytes: Form<Bytes> = {
  schema: z.custom<Bytes>((value) => value instanceof Uint8Array).meta({ type: 'string', format: 'binary' }),
  read: async (bytes) => bytes,
}

/** Text, or a JSON object whose client calls it text: no program is one. */
export const asTextOr = <T>(json: Form<T>): Form<T | Bytes> => ({
  ...asBytes,
  actual: (bytes) => (isJsonObject(bytes) ? json : asBytes),
})

function isJsonObject(bytes: Bytes): boolean {
  try {
    const value: unknown = JSON.parse(decode(bytes))
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

/** Parts by their names: what the schema has as an array are files, all else is text, however it was sent. */
export const asForm = <S extends z.ZodObject>(schema: S): Form<z.output<S>> => ({
  schema: schema as unknown as z.ZodType<z.output<S>>,
  async read(bytes, contentType) {
    const parts = await formOf(bytes, contentType)
    const entries = Object.entries(schema.shape).map(async ([name, field]) => {
      if (field instanceof z.ZodArray) return [name, parts.getAll(name)]
      const [part] = parts.getAll(name)
      return [name, part instanceof File ? await part.text() : part]
    })
    return Object.fromEntries(await Promise.all(entries))
  },
})

/** Names and values as HTML forms send them: of a name that comes more than once all values, which no text field takes. */
export const asFields = <S extends z.ZodObject>(schema: S): Form<z.output<S>> => ({
  schema: schema as unknown as z.ZodType<z.output<S>>,
  async read(bytes) {
    const fields = new URLSearchParams(decodeStrictly(bytes))
    return Object.fromEntries(
      Array.from(new Set(fields.keys()), (name) => {
        const [value, ...more] = fields.getAll(name)
        return [name, more.length > 0 ? [value, ...more] : value]
      }),
    )
  },
})

function decodeStrictly(bytes: Bytes): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    throw new ApiError('bad_request.malformed_body', { detail: 'it is no text in UTF-8', cause })
  }
}

/** A part of a form that holds JSON. */
export const jsonPart = <S extends z.ZodType>(schema: S) => z.preprocess(parsed, schema)

function parsed(text: unknown): unknown {
  try {
    return JSON.parse(String(text))
  } catch {
    return text
  }
}

async function formOf(bytes: Bytes, contentType: string): Promise<FormData> {
  try {
    return await new Response(bytes, { headers: { 'content-type': contentType } }).formData()
  } catch (cause) {
    throw new ApiError('bad_request.malformed_body', { detail: 'it is no complete multipart form', cause })
  }
}

/** What was received, a copy of it that is read, and what comes of it. */
const COPIES = 3
/** As little as JSON bodies have, whose memory is not counted either. */
const UNCOUNTED_BYTES_MAX = 1024 * 1024
const isCounted = ({ sizeBytesMax }: BufferedBody): boolean => sizeBytesMax > UNCOUNTED_BYTES_MAX

/** The handler gets what the body says, once its schema has checked it. */
export function readBufferedBody(body: BufferedBody, check: (schema: z.ZodType, value: unknown) => unknown) {
  return async function readBufferedBody(c, next) {
    if (body.optional && isAbsent(c)) return next()
    const type = c.req.header('content-type')
    const named = formFor(body, type)
    const release = await hold(c, body)
    try {
      const bytes = await bytesOf(c, body.sizeBytesMax)
      const form = named.actual?.(bytes) ?? named
      const value = await form.read(bytes, type ?? '')
      c.set('body', check(form.schema, value))
      await next()
    } finally {
      release()
    }
  } satisfies MiddlewareHandler<AppEnv>
}

const isAbsent = ({ req }: Context): boolean => !req.raw.body || req.header('content-length') === '0'

function formFor({ forms }: BufferedBody, type: string | undefined): Form {
  const [essence = ''] = (type ?? '').split(';')
  const form = forms[essence.trim().toLowerCase()]
  if (form) return form
  const came = type ? `it came as ${type}` : 'it has no content-type'
  throw new ApiError('unsupported_media_type', { detail: `send ${Object.keys(forms).join(' or ')}; ${came}` })
}

async function hold(c: Context<AppEnv>, body: BufferedBody): Promise<() => void> {
  const { sizeBytesMax } = body
  const declared = Number(c.req.header('content-length') ?? sizeBytesMax)
  if (declared > sizeBytesMax) throw tooLarge(sizeBytesMax)
  if (!isCounted(body)) return () => {}
  const owner = `projects/${c.var.access.project?.ref}`
  const memory = await reserveMemory(COPIES * declared, owner).catch((cause) => {
    throw cause instanceof MemoryExhausted ? new ApiError('service_unavailable.memory', { cause }) : cause
  })
  return memory.release
}

async function bytesOf({ req, var: { ctx } }: Context<AppEnv>, sizeBytesMax: number): Promise<Bytes> {
  if (!req.raw.body) return new Uint8Array()
  const { BODY_TIMEOUT_SECONDS: seconds } = ctx.config
  const bytesMax = Number(req.header('content-length') ?? sizeBytesMax)
  const parts = readParts(req.raw.body, { bytesMax, chunkMsMax: seconds * 1000 })
  const bytes = await parts.next(sizeBytesMax + 1).catch((cause) => {
    if (cause instanceof BodyStalled) throw bodyTimeout(seconds, { cause })
    throw new ApiError('bad_request.malformed_body', { detail: 'it did not come in full', cause })
  })
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
  ...(isCounted(body) ? (['service_unavailable.memory'] as const) : []),
]

export const bodyTimeout = (seconds: number, options: { cause?: unknown } = {}) =>
  new ApiError('request_timeout', { detail: `the body did not come within ${seconds} s`, ...options })

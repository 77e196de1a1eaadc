import { sandboxHeaders } from '../gateway/shared-origin.ts'
import type { ApiRequest, Reply, ResultRow } from './compile.ts'
import { CORS_HEADERS } from './cors.ts'
import { type DataApiError, requestError } from './data-api-error.ts'
import type { Outcome } from './execute.ts'
import { appliedPreferences, type Preferences } from './request/preferences.ts'

interface Context {
  requestId: string
  /** The path of the request, if other projects share its origin. */
  sharedPath: string | undefined
}

export function responseOf(
  request: ApiRequest,
  { compiled, row, estimate }: Outcome,
  { requestId, sharedPath }: Context,
): Response {
  const { preferences, config, schema } = request
  const reply: Reply = compiled.media.plan
    ? { status: 200, headers: {}, body: row.body }
    : compiled.reply(row, estimate)
  const isHead = request.method === 'HEAD'
  const status = statusIn(row) ?? reply.status
  const isBodiless = BODILESS.includes(status)
  const describesBody = reply.body !== null || (isHead && reply.status !== 204)
  const always = ['tx', 'handling', 'timezone'] as const
  const applied = appliedPreferences(preferences, [...compiled.effective, ...always] satisfies (keyof Preferences)[])
  // A record, because each call of `Headers` costs more than all of this.
  const known: Record<string, string> = {
    ...reply.headers,
    ...(describesBody && { 'content-type': compiled.media.contentType }),
    ...(describesBody && config.schemas.length > 1 && { 'content-profile': schema }),
    ...(applied !== '' && { 'preference-applied': applied }),
    // Clients recognize a reply without a body by its length.
    ...(reply.body === null && !isHead && !isBodiless && { 'content-length': '0' }),
    ...CORS_HEADERS,
    'x-request-id': requestId,
  }
  const isInert = row.headers === null && (!describesBody || IS_JSON.test(compiled.media.contentType))
  const own = isInert ? undefined : withOwnHeaders(known, row.headers ?? '[]')
  if (own && sharedPath !== undefined) sandboxHeaders(own, sharedPath)
  const contentType = own ? own.get('content-type') : known['content-type']
  const body = isHead || isBodiless ? null : bodyOf(reply.body, contentType ?? '')
  return new Response(body, { status, headers: own ?? known })
}

const BODILESS = [101, 204, 205, 304]

/** Decodes the hexadecimal text of a binary value, unless the reply is text. */
function bodyOf(text: Reply['body'], contentType: string): Reply['body'] {
  if (typeof text !== 'string' || IS_TEXT.test(contentType) || !isHex(text)) return text
  return Buffer.from(text.slice(2), 'hex')
}

/** Types that no browser renders as a page or runs as a script. */
const IS_JSON = /^application\/([\w.-]+\+)?json(;[^,]*)?$/
const IS_TEXT = /^(text\/|application\/(.*\+)?json)/
const isHex = (text: string) => text.length % 2 === 0 && /^\\x[0-9a-f]*$/.test(text)

/** The status that SQL has set in `response.status`. */
function statusIn({ status }: ResultRow): number | undefined {
  if (status === null) return undefined
  const number = Number(status)
  if (Number.isInteger(number) && number >= 200 && number <= 599) return number
  throw requestError('PGRST112')
}

/** Headers that SQL cannot replace: the reply could not be read by a page or found in logs, or its length would be wrong. */
const KEPT_HEADERS = new Set([...Object.keys(CORS_HEADERS), 'content-length', 'x-request-id'])

/** Adds the headers that SQL has set in `response.headers`: a list of objects with one member each. */
function withOwnHeaders(known: Record<string, string>, text: string): Headers {
  const headers = new Headers(known)
  const seen = new Set<string>()
  for (const [name, value] of headersIn(text)) {
    if (KEPT_HEADERS.has(name.toLowerCase())) continue
    if (seen.has(name.toLowerCase())) headers.append(name, value)
    else headers.set(name, value)
    seen.add(name.toLowerCase())
  }
  return headers
}

function headersIn(text: string): [name: string, value: string][] {
  try {
    const list: unknown = JSON.parse(text)
    if (!Array.isArray(list)) throw new TypeError('not a list')
    const entries = list.map((one: unknown) => {
      const [entry, ...more] = Object.entries(one as Record<string, unknown>)
      if (!entry || more.length > 0 || typeof entry[1] !== 'string') throw new TypeError('not one header')
      return [entry[0], entry[1]] as [string, string]
    })
    void new Headers(entries)
    return entries
  } catch {
    throw requestError('PGRST111')
  }
}

export function errorResponse(error: DataApiError, options: Context & { isHead: boolean }): Response {
  const headers = new Headers({ 'content-type': 'application/json; charset=utf-8' })
  headers.set('proxy-status', `PostgREST; error=${error.code}`)
  for (const [name, value] of Object.entries(error.headers)) {
    try {
      headers.set(name, value)
    } catch {
      return errorResponse(requestError('PGRST111'), options)
    }
  }
  const { isHead, requestId, sharedPath } = options
  for (const [name, value] of Object.entries(CORS_HEADERS)) headers.set(name, value)
  headers.set('x-request-id', requestId)
  if (sharedPath !== undefined) sandboxHeaders(headers, sharedPath)
  const { status, statusText } = error
  const body = isHead || BODILESS.includes(status) ? null : JSON.stringify(error.body)
  return new Response(body, { status, statusText, headers })
}

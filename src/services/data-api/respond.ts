import type { ApiRequest, Reply, ResultRow } from './compile.ts'
import { type DataApiError, requestError } from './data-api-error.ts'
import type { Outcome } from './execute.ts'
import { appliedPreferences, type Preferences } from './request/preferences.ts'

export function responseOf(request: ApiRequest, { compiled, row, estimate }: Outcome): Response {
  const { preferences, config, schema } = request
  const reply: Reply = compiled.media.plan
    ? { status: 200, headers: {}, body: row.body }
    : compiled.reply(row, estimate)
  const headers = new Headers(reply.headers)
  const hasBody = reply.body !== null || (request.method === 'HEAD' && reply.status !== 204)
  if (hasBody) headers.set('content-type', compiled.media.contentType)
  if (config.schemas.length > 1 && hasBody) headers.set('content-profile', schema)
  const always = ['tx', 'handling', 'timezone'] as const
  const applied = appliedPreferences(preferences, [...compiled.effective, ...always] satisfies (keyof Preferences)[])
  if (applied !== '') headers.set('preference-applied', applied)
  const status = statusIn(row) ?? reply.status
  addHeaders(headers, row)
  const body = BODILESS.includes(status) ? null : bodyOf(reply.body, headers.get('content-type') ?? '')
  const response = new Response(request.method === 'HEAD' ? null : body, { status, headers })
  // Clients recognize a reply without a body by its length.
  if (body === null && request.method !== 'HEAD' && !BODILESS.includes(status))
    response.headers.set('content-length', '0')
  return response
}

const BODILESS = [101, 204, 205, 304]

/** Decodes the hexadecimal text of a binary value, unless the reply is text. */
function bodyOf(text: Reply['body'], contentType: string): Reply['body'] {
  if (typeof text !== 'string') return text
  if (/^(text\/|application\/(.*\+)?json)/.test(contentType) || !isHex(text)) return text
  return Buffer.from(text.slice(2), 'hex')
}

const isHex = (text: string) => text.length % 2 === 0 && /^\\x[0-9a-f]*$/.test(text)

/** The status that SQL has set in `response.status`. */
function statusIn({ status }: ResultRow): number | undefined {
  if (status === null) return undefined
  const number = Number(status)
  if (Number.isInteger(number) && number >= 200 && number <= 599) return number
  throw requestError('PGRST112')
}

/** The headers that SQL has set in `response.headers`: a list of objects with one member each. */
function addHeaders(headers: Headers, row: ResultRow): void {
  if (row.headers === null) return
  const seen = new Set<string>()
  for (const [name, value] of headersIn(row.headers)) {
    if (seen.has(name.toLowerCase())) headers.append(name, value)
    else headers.set(name, value)
    seen.add(name.toLowerCase())
  }
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

export function errorResponse(error: DataApiError, isHead: boolean): Response {
  const headers = new Headers({ 'content-type': 'application/json; charset=utf-8' })
  headers.set('proxy-status', `PostgREST; error=${error.code}`)
  for (const [name, value] of Object.entries(error.headers)) {
    try {
      headers.set(name, value)
    } catch {
      return errorResponse(requestError('PGRST111'), isHead)
    }
  }
  const { status } = error
  const body = isHead || BODILESS.includes(status) ? null : JSON.stringify(error.body)
  return new Response(body, { status, headers })
}

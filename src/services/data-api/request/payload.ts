import { openValueCounter } from '../../../platform/http/count-json-values.ts'
import { bodyTooLarge, requestError } from '../data-api-error.ts'
import { parseForm } from './form-encoding.ts'

/** The body of a write or a call, without its text. */
export type Payload =
  | {
      kind: 'json'
      isArray: boolean
      keys: readonly string[]
      /** Whether the body was JSON, not CSV or a form. */
      isJson: boolean
      isEmpty?: boolean
      /** The fields of a form, as often as they were sent. */
      fields?: readonly (readonly [string, string])[]
    }
  | { kind: 'raw'; type: 'text/plain' | 'text/xml' | 'application/octet-stream' }

export type JsonPayload = Extract<Payload, { kind: 'json' }>

interface Body {
  payload: Payload
  /** The parameter of the statement: JSON, or the body as it was sent. */
  text: string
}

/** A body with its parameters must fit into one request to the database. */
const BODY_BYTES_MAX = 10 * 1024 * 1024
/** Limit of the database host for the body of a request. */
const JSON_LENGTH_MAX = 16 * 1024 * 1024

/** Limit for the objects, arrays and places in them: each takes far more memory than its bytes. */
const VALUES_MAX = 1_000_000
/** Limit for a form, whose fields are columns. */
const FIELDS_MAX = 10_000
const AMPERSAND = 0x26

type Row = Record<string, unknown>

interface PayloadOptions {
  /** Whether the request names the columns, so that the keys of the body do not. */
  namesColumns: boolean
  isInsert: boolean
}

export async function readBody(request: Request, options: PayloadOptions): Promise<Body> {
  const type = (request.headers.get('content-type') ?? 'application/json').split(';')[0]?.trim().toLowerCase() ?? ''
  const bytes = await readBytes(request)
  if (type === 'application/octet-stream')
    return { payload: { kind: 'raw', type }, text: `\\x${bytes.toString('hex')}` }
  const text = textIn(bytes)
  switch (type) {
    case 'application/json':
    case 'application/vnd.pgrst.object+json':
    case 'application/vnd.pgrst.array+json':
    case '':
      // A shorter body has fewer values.
      if (bytes.length > VALUES_MAX && openValueCounter()(bytes) > VALUES_MAX)
        throw bodyTooLarge(`${VALUES_MAX} values`)
      return jsonBody(text, options)
    case 'text/csv':
      return csvBody(csvRows(text))
    case 'application/x-www-form-urlencoded':
      // Decoding malformed fields is slow: as many as a body can hold would stop the Worker for a minute.
      if (bytes.filter((byte) => byte === AMPERSAND).length > FIELDS_MAX) throw bodyTooLarge(`${FIELDS_MAX} fields`)
      return formBody(parseForm(text))
    case 'text/plain':
    case 'text/xml':
      return { payload: { kind: 'raw', type }, text }
    default:
      throw requestError('PGRST102', { message: `Content-Type not acceptable: ${type}` })
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })

function textIn(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch {
    throw requestError('PGRST102', { message: 'The body is not valid UTF-8' })
  }
}

async function readBytes(request: Request): Promise<Buffer> {
  const length = request.headers.get('content-length')
  if (Number(length) > BODY_BYTES_MAX) throw bodyTooLarge(`${BODY_BYTES_MAX} bytes`)
  // Cheaper than reading chunks, which is necessary only if the size is unknown.
  if (length !== null) return Buffer.from(await request.arrayBuffer())
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of request.body ?? []) {
    size += chunk.byteLength
    if (size > BODY_BYTES_MAX) throw bodyTooLarge(`${BODY_BYTES_MAX} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function jsonBody(text: string, { namesColumns, isInsert }: PayloadOptions): Body {
  if (text.trim() === '') return { payload: { ...objectPayload({}), isEmpty: true }, text: '{}' }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw requestError('PGRST102')
  }
  if (Array.isArray(value)) return { payload: rowsPayload(value, namesColumns), text }
  if (typeof value === 'object' && value !== null) return { payload: objectPayload(value as Row), text }
  // As in PostgREST: a scalar has no rows.
  if (isInsert && !namesColumns) return { payload: rowsPayload([]), text: '[]' }
  return { payload: objectPayload({}), text }
}

const objectPayload = (row: Row): JsonPayload => ({
  ...{ kind: 'json', isArray: false, keys: Object.keys(row), isJson: true },
})

function formBody(fields: readonly (readonly [string, string])[]): Body {
  const row = Object.fromEntries(fields)
  return { payload: { ...objectPayload(row), isJson: false, fields }, text: JSON.stringify(row) }
}

const csvBody = (rows: readonly Row[]): Body => ({
  payload: { ...rowsPayload(rows), isJson: false },
  text: JSON.stringify(rows),
})

/** All rows must have the keys of the first one, unless the request names the columns. */
function rowsPayload(rows: readonly unknown[], namesColumns = false): JsonPayload {
  const objects = rows.map((row) => (typeof row === 'object' && row !== null && !Array.isArray(row) ? row : undefined))
  const keys = Object.keys(objects[0] ?? {})
  if (!namesColumns && !objects.every((row) => row && hasKeys(row, keys))) {
    throw requestError('PGRST102', { message: 'All object keys must match' })
  }
  return { kind: 'json', isArray: true, keys, isJson: true }
}

const hasKeys = (row: object, keys: readonly string[]): boolean =>
  Object.keys(row).length === keys.length && keys.every((key) => Object.hasOwn(row, key))

/** The first line names the columns; the text NULL is null. */
function csvRows(text: string): Row[] {
  const [names = [], ...lines] = csvLines(text)
  // Each line repeats the names once it is JSON.
  if (lines.length * JSON.stringify(names).length > JSON_LENGTH_MAX)
    throw bodyTooLarge(`${JSON_LENGTH_MAX} bytes as JSON`)
  return lines.map((cells) => {
    if (cells.length !== names.length)
      throw requestError('PGRST102', { message: 'All lines must have same number of fields' })
    return Object.fromEntries(names.map((name, index) => [name, cells[index] === 'NULL' ? null : cells[index]]))
  })
}

/** The cells of each line that is not blank. */
function csvLines(text: string): string[][] {
  const lines: string[][] = []
  let cells: string[] = []
  let count = 0
  let at = 0
  while (at < text.length) {
    const { cell, end } = text[at] === '"' ? quotedCell(text, at) : plainCell(text, at)
    count += 1
    if (count > VALUES_MAX) throw bodyTooLarge(`${VALUES_MAX} values`)
    cells.push(cell)
    at = end
    if (at < text.length && !',\r\n'.includes(text[at] ?? '')) {
      throw requestError('PGRST102', {
        message: 'Invalid CSV: a field that contains a quote must be quoted as a whole',
      })
    }
    if (text[at] === ',') {
      at += 1
      if (at < text.length && text[at] !== '\r' && text[at] !== '\n') continue
      count += 1
      cells.push('')
    }
    at += text.startsWith('\r\n', at) ? 2 : 1
    if (cells.length > 1 || cells[0] !== '') lines.push(cells)
    cells = []
  }
  return lines
}

function plainCell(text: string, start: number) {
  let end = start
  while (end < text.length && !'",\r\n'.includes(text[end] ?? '')) end += 1
  return { cell: text.slice(start, end), end }
}

function quotedCell(text: string, start: number): { cell: string; end: number } {
  let at = text.indexOf('"', start + 1)
  while (at >= 0 && text[at + 1] === '"') at = text.indexOf('"', at + 2)
  if (at < 0) throw requestError('PGRST102', { message: 'A quoted field of the CSV has no end' })
  return { cell: text.slice(start + 1, at).replaceAll('""', '"'), end: at + 1 }
}

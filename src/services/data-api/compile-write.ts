import { type ApiRequest, type Compiled, mediaOf, planRows, type ResultRow } from './compile.ts'
import { requireTable, SOURCE } from './compile-read.ts'
import { requestError } from './data-api-error.ts'
import { hasAggregates, NO_CHILDREN, type ReadNode } from './plan/read-plan.ts'
import { writeForm } from './request/form-encoding.ts'
import { isSingular, type Media } from './request/media-types.ts'
import type { JsonPayload, Payload } from './request/payload.ts'
import type { Preferences } from './request/preferences.ts'
import { contentRange } from './request/range.ts'
import type { Column, SchemaCache, Table } from './schema/types.ts'
import { Parameters, quote } from './sql/builder.ts'
import { readSql } from './sql/read-sql.ts'
import { type Checks, resultSql } from './sql/result-sql.ts'
import { deleteSql, type Insert, insertSql, returningSql, UPDATED_ROWS, updateSql } from './sql/write-sql.ts'

interface Write {
  request: ApiRequest
  table: Table
  media: Media
  node: ReadNode
}

/** Compiles a POST, PATCH, PUT or DELETE of a table. */
export function compileWrite(request: ApiRequest, cache: SchemaCache): Compiled {
  const table = requireTable(cache, request)
  const media = mediaOf(request, cache, { relation: table })
  const write: Write = {
    ...{ request, table, media },
    node: planRows(request, cache, { relation: table, table, isLimited: false, media }),
  }
  if (request.method === 'PUT') requireKeyFilters(write)
  const params = new Parameters()
  const returned = returnedOf(write)
  const changed = changeSql(params, write, returned.columns)
  const rows = returned.isRead ? `, pgrst_rows AS (${readSql(params, readOf(write), { source: SOURCE })})` : ''
  const source = returned.isRead ? 'pgrst_rows' : SOURCE
  const { preferences } = request
  const result = resultSql(params, {
    ...{ media: write.media, source, isEmpty: preferences.return !== 'representation' },
    // An embedded resource with `!inner` leaves changed rows out of the reply.
    checks: { ...checksOf(write), changed: returned.isRead ? SOURCE : undefined, isGrouped: hasAggregates(write.node) },
    more: `, ${UPDATED_ROWS} AS updated${returned.location}`,
  })
  return {
    main: { text: `WITH ${SOURCE} AS (${changed})${rows} ${result}`, params: params.values },
    ...{ isReadOnly: false, settings: {}, media: write.media, effective: effectiveOf(write) },
    reply: replyOf(request),
  }
}

/** The rows that a change returns: none, the key of the new row, or the columns that the caller selects. */
function returnedOf({ request, table, node }: Write) {
  const { preferences, method } = request
  if (preferences.return === 'representation') return { columns: returningSql(node), isRead: true, location: '' }
  const { primaryKey } = table
  if (preferences.return !== 'headers-only' || method !== 'POST' || primaryKey.length === 0) {
    return { columns: '1', isRead: false, location: '' }
  }
  const columns = primaryKey.map((column) => `${quote(table.name)}.${quote(column)}`).join(', ')
  // Texts, because a number of JSON may have more digits than one of JavaScript.
  const filters = `SELECT json_object_agg(key, coalesce('eq.' || value, 'is.null')) FROM json_each_text(json_agg(pgrst_row.*) -> 0)`
  const location = `, CASE WHEN count(pgrst_row.*) = 1 THEN (${filters})::text END AS location`
  return { columns, isRead: false, location }
}

/** Reads all changed rows: the filters and the window apply to the change itself. */
const readOf = ({ node }: Write): ReadNode => ({ ...node, logic: [], window: { offset: 0 } })

function changeSql(params: Parameters, { request, table, node }: Write, returning: string): string {
  // Without embedded resources, every filter is one of the table itself.
  const change: ReadNode = { ...node, children: [], childrenByName: NO_CHILDREN }
  if (request.method === 'DELETE') return deleteSql(params, change, table, returning)
  const payload = requireJson(request.payload)
  const columns = columnsOf(request, table, payload)
  const fillsDefaults = request.preferences.missing === 'default'
  const body = { table, payload, columns, fillsDefaults }
  if (request.method === 'PATCH') return updateSql(params, change, body, returning)
  const isPut = request.method === 'PUT'
  const names = new Set(columns.map(({ name }) => name))
  if (isPut && !table.primaryKey.every((name) => names.has(name))) throw requestError('PGRST115')
  const insert: Insert = { ...body, conflict: conflictOf(request, table), ...(isPut && { bodyFilters: change }) }
  return insertSql(params, insert, returning)
}

function requireJson(payload: Payload | undefined): JsonPayload {
  if (payload?.kind === 'json' && payload.isEmpty) throw requestError('PGRST102')
  if (payload?.kind === 'json') return payload
  throw requestError('PGRST102', { message: `Content-Type not acceptable: ${payload?.type ?? ''}` })
}

function columnsOf({ query }: ApiRequest, table: Table, payload: JsonPayload): Column[] {
  return [...new Set(query.columns ?? payload.keys)].map((name) => {
    const column = table.columns.get(name)
    if (column) return column
    throw requestError('PGRST204', {
      message: `Could not find the '${name}' column of '${table.name}' in the schema cache`,
    })
  })
}

function conflictOf({ preferences, query, method }: ApiRequest, { primaryKey }: Table): Insert['conflict'] {
  if (method === 'PUT') return { columns: primaryKey, action: 'merge' }
  if (preferences.resolution === undefined) return undefined
  const action = preferences.resolution === 'merge-duplicates' ? 'merge' : 'ignore'
  return { columns: query.onConflict ?? primaryKey, action }
}

/** Requires that a PUT names one row by equality of all columns of its primary key. */
function requireKeyFilters({ request: { query }, table }: Write): void {
  if (query.windows.some(({ path }) => path.length === 0)) throw requestError('PGRST114')
  const names = query.filters.flatMap(({ path, value }) => {
    const { operation, negated, field } = value
    const isEqual = operation.kind === 'compare' && operation.operator === 'eq' && !operation.quantifier && !negated
    return path.length === 0 && isEqual && field.path.length === 0 ? [field.name] : ['']
  })
  const key = new Set(table.primaryKey)
  const isKey = key.size > 0 && new Set(names).size === key.size && names.every((name) => key.has(name))
  if (!isKey || query.logic.length > 0) throw requestError('PGRST105')
}

function checksOf({ request, media }: Write): Checks {
  const { method, preferences } = request
  return {
    isSingular: isSingular(media),
    matchesUrl: method === 'PUT',
    affectedMax: isAffectedLimited(request) ? preferences.maxAffected : undefined,
  }
}

export const isAffectedLimited = ({ method, preferences, isCall }: ApiRequest): boolean =>
  preferences.handling === 'strict' &&
  preferences.maxAffected !== undefined &&
  (isCall || (method !== 'POST' && method !== 'PUT'))

function effectiveOf({ request, table }: Write): (keyof Preferences)[] {
  const { method } = request
  const conflict = method === 'POST' ? conflictOf(request, table) : undefined
  return [
    ...(conflict && conflict.columns.length > 0 ? ['resolution' as const] : []),
    ...(method === 'POST' || method === 'PATCH' ? ['missing' as const] : []),
    ...(isAffectedLimited(request) ? ['maxAffected' as const] : []),
    ...(['return', 'count'] as const),
  ]
}

const replyOf =
  (request: ApiRequest): Compiled['reply'] =>
  (row) => {
    const { method, preferences, name } = request
    const { rows, body, location } = row
    const total = preferences.count === undefined ? undefined : rows
    const range = contentRange({ offset: 0, rows: method === 'PATCH' ? rows : 0, total })
    const headers = {
      ...(method !== 'PUT' && { 'content-range': range }),
      ...(location && { location: locationOf(name, location) }),
    }
    return { status: statusOf(request, row), headers, body }
  }

function statusOf({ method, preferences }: ApiRequest, { rows, body, updated = 0 }: ResultRow): number {
  if (method !== 'POST' && body === null) return 204
  const isInsert = method === 'POST' && preferences.resolution !== 'merge-duplicates'
  const isUpsert = method === 'POST' || method === 'PUT'
  return isInsert || (isUpsert && rows > updated) ? 201 : 200
}

const locationOf = (name: string, filters: string): string =>
  `/${encodeURIComponent(name)}?${writeForm(Object.entries(JSON.parse(filters) as Record<string, string>))}`

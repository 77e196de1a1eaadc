import { type ApiRequest, type Compiled, estimateStatement, mediaOf, planRows, totalOf, totalSql } from './compile.ts'
import { requestError } from './data-api-error.ts'
import { writeForm } from './request/form-encoding.ts'
import { isSingular } from './request/media-types.ts'
import { contentRange, pageStatus } from './request/range.ts'
import { suggest } from './schema/suggestions.ts'
import { keyOf, type SchemaCache, type Table } from './schema/types.ts'
import { Parameters } from './sql/builder.ts'
import { readSql } from './sql/read-sql.ts'
import { resultSql } from './sql/result-sql.ts'

export const SOURCE = 'pgrst_source'

export function requireTable(cache: SchemaCache, { schema, name }: ApiRequest): Table {
  const table = cache.tables.get(keyOf({ schema, name }))
  if (table) return table
  const names = [...cache.tables.values()].filter((one) => one.schema === schema).map((one) => one.name)
  const close = suggest(names, name)
  throw requestError('PGRST205', {
    message: `Could not find the table '${schema}.${name}' in the schema cache`,
    hint: close === undefined ? null : `Perhaps you meant the table '${schema}.${close}'`,
  })
}

export function compileRead(request: ApiRequest, cache: SchemaCache): Compiled {
  const table = requireTable(cache, request)
  const media = mediaOf(request, cache, { relation: table })
  const node = planRows(request, cache, { relation: table, table, isLimited: true, media })
  const params = new Parameters()
  const source = `WITH ${SOURCE} AS (${readSql(params, node)})`
  const total = totalSql(params, request, node)
  const result = resultSql(params, { media, source: SOURCE, total, isEmpty: request.method === 'HEAD' })
  const { offset } = node.window
  const location = canonicalPath(request)
  return {
    main: { text: `${source} ${result}`, params: params.values },
    ...{ estimate: estimateStatement(request, node), isReadOnly: true, settings: {}, media, effective: ['count'] },
    reply(row, estimate) {
      const page = { offset, rows: row.rows, total: totalOf(request, row, estimate) }
      if (isSingular(media)) requireOne(row.rows)
      return {
        status: pageStatus(page),
        headers: { 'content-range': contentRange(page), 'content-location': location },
        body: row.body,
      }
    },
  }
}

export function requireOne(rows: number | string): void {
  if (Number(rows) !== 1) throw requestError('PGRST116', { details: `The result contains ${rows} rows` })
}

/** The path with its parameters sorted: one address for equal requests. */
function canonicalPath({ name, parameters }: ApiRequest): string {
  const sorted = parameters.toSorted(([a], [b]) => (a < b ? -1 : Number(a > b)))
  const query = writeForm(sorted)
  return `/${encodeURIComponent(name)}${query && `?${query}`}`
}

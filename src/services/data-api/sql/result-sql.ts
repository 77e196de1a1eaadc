import { FORCED_ROLLBACK } from '../../../engine/forced-rollback.ts'
import type { Media } from '../request/media-types.ts'
import type { MediaHandler } from '../schema/types.ts'
import { type Parameters, qualified } from './builder.ts'

let prefix: string | undefined
/** The beginning of the text of a failed check. It is random, because a filter can make Postgres refuse any text that its caller knows. */
export function failurePrefix(): string {
  // A Worker has no random values before its first request.
  prefix ??= `${FORCED_ROLLBACK}${crypto.randomUUID()}:`
  return prefix
}

/** SQL that fails the transaction by an invalid cast. The random prefix is a parameter, so that all Workers send the same statement. */
const failure = (params: Parameters, check: string, detail: string) =>
  `(${params.addTyped(`${failurePrefix()}${check}:`, 'text')} || ${detail})::int`

export interface Checks {
  /** There must be exactly one row. */
  isSingular?: boolean
  /** There must be exactly one row, which the URL of a PUT names. */
  matchesUrl?: boolean
  affectedMax?: number | undefined
  /** The common table expression of the changed rows, if the rows of the reply may be fewer. */
  changed?: string | undefined
  /** Whether a row of the reply stands for several rows. */
  isGrouped?: boolean
}

/**
 * SQL that fails if the schema has changed since the statement was compiled. The text of the failure must not be constant: Postgres would
 * evaluate it when it plans the statement.
 */
export const requireVersion = (params: Parameters, version: string, expected: string): string =>
  `CASE WHEN ${version} = ${params.addTyped(expected, 'text')} THEN 0 ELSE ${failure(params, 'schema', version)} END`

function checksSql(params: Parameters, { isSingular, matchesUrl, affectedMax, changed, isGrouped }: Checks): string {
  const rows = 'count(pgrst_row.*)'
  const all = changed === undefined ? rows : `(SELECT count(*) FROM ${changed})`
  const unlessOne = (check: string, count: string) => `WHEN ${count} <> 1 THEN ${failure(params, check, count)}`
  const cases = [
    ...(matchesUrl ? [unlessOne('url', all)] : []),
    ...(isSingular ? [...new Set(isGrouped ? [rows] : [all, rows])].map((count) => unlessOne('rows', count)) : []),
    ...(affectedMax === undefined ? [] : [`WHEN ${all} > ${affectedMax} THEN ${failure(params, 'affected', all)}`]),
  ]
  return cases.length === 0 ? '' : `, CASE ${cases.join(' ')} END AS checked`
}

/** The form of a function's result: one value or one row, instead of a list. */
interface Shape {
  isScalar?: boolean
  isSingle?: boolean
}

function bodySql({ format, handler }: Media, source: string, { isScalar, isSingle }: Shape): string {
  const value = isScalar ? 'pgrst_row.pgrst_scalar' : 'pgrst_row.*'
  const rows = `json_agg(${value})`
  const list = `coalesce(${rows}, '[]')`
  const first = `coalesce(${rows} -> 0, 'null')`
  switch (format) {
    case 'json':
      return isSingle ? first : list
    case 'object':
      return first
    case 'stripped-object':
      return `json_strip_nulls(${first})`
    case 'stripped-array':
      return `json_strip_nulls(${isSingle ? first : list})`
    case 'geojson':
      return `json_build_object('type', 'FeatureCollection', 'features', coalesce(json_agg(ST_AsGeoJSON(pgrst_row.*)::json), '[]'))`
    case 'csv':
      return csvSql(source)
    case 'custom':
      return handler ? handledSql(handler, value) : `string_agg((${value})::text, '')`
    case 'plan':
      return list
  }
}

/** SQL of a handler's body. Rows of a query must be cast before a function accepts them as rows of a relation. */
const handledSql = (handler: MediaHandler, value: string): string =>
  `coalesce(${qualified(handler)}((${value})${handler.relation ? `::${qualified(handler.relation)}` : ''})::text, '')`

/** SQL of a CSV body. Postgres writes a row as its fields in parentheses, quoted as in CSV. */
const csvSql = (source: string) => `(
  SELECT coalesce(string_agg(name, ','), '') FROM (
    SELECT json_object_keys(row_to_json(one.*)) AS name FROM (SELECT * FROM ${source} LIMIT 1) AS one) AS names)
  || chr(10) || coalesce(string_agg(substr((pgrst_row.*)::text, 2, length((pgrst_row.*)::text) - 2), chr(10)), '')`

interface Result {
  media: Media
  /** The common table expression of the rows. */
  source: string
  /** SQL that counts all rows; absent if the caller asks for no count. */
  total?: string | undefined
  /** Whether the reply has no body: for HEAD, and for writes that return nothing. */
  isEmpty?: boolean
  checks?: Checks
  shape?: Shape
  more?: string
}

/** The settings by which SQL changes the response, as columns of the result. */
export const RESPONSE_SETTINGS = `nullif(current_setting('response.headers', true), '') AS headers,
    nullif(current_setting('response.status', true), '') AS status`

/** The position of the body among the columns of `resultSql`. */
export const BODY_COLUMN = 2

/** SQL of the row that becomes the response. The settings by which SQL changes the response are read after all rows. */
export function resultSql(
  params: Parameters,
  { media, source, total, isEmpty, checks = {}, shape = {}, more = '' }: Result,
): string {
  const body = isEmpty ? 'NULL' : `(${bodySql(media, source, shape)})::text`
  return `SELECT count(pgrst_row.*)::int AS rows, ${total === undefined ? 'NULL' : total} AS total, ${body} AS body,
    ${RESPONSE_SETTINGS}${checksSql(params, checks)}${more}
    FROM (SELECT * FROM ${source}) AS pgrst_row`
}

import type { Statement } from '../../engine/engine.ts'
import type { SeparateValue } from '../../engine/separate-value.ts'
import type { DataApiConfig } from '../gateway/data-api-config.ts'
import type { ReadNode } from './plan/read-plan.ts'
import { planRead } from './plan/read-plan.ts'
import { chooseMedia, type Media } from './request/media-types.ts'
import type { Payload } from './request/payload.ts'
import type { Preferences } from './request/preferences.ts'
import type { Parameter, QueryParams } from './request/query-string.ts'
import { parseRange } from './request/range.ts'
import type { SelectItem } from './request/select.ts'
import { ANY_RELATION, keyOf, type Name, type SchemaCache, type Table } from './schema/types.ts'
import { Parameters } from './sql/builder.ts'
import { countSql } from './sql/read-sql.ts'

/** A parsed request, before the schema is known. */
export interface ApiRequest {
  method: string
  schema: string
  name: string
  isCall: boolean
  /** The headers `Accept` and `Range`. */
  accept: string | null
  range: string | null
  /** The query parameters, in the order of the URL. */
  parameters: readonly Parameter[]
  query: QueryParams
  preferences: Preferences
  payload: Payload | undefined
  config: DataApiConfig
}

type Body = string | SeparateValue | null

/** The row that the main statement returns. */
export interface ResultRow {
  rows: number
  total: string | null
  body: Body
  headers: string | null
  status: string | null
  location?: string | null
  updated?: number
}

export interface Reply {
  status: number
  headers: Record<string, string>
  body: Body
}

/** A statement, and how its result becomes the response. */
export interface Compiled {
  main: Statement
  /** Estimates the number of all rows. */
  estimate?: Statement | undefined
  isReadOnly: boolean
  /** Settings of this request's transaction. */
  settings: Readonly<Record<string, string>>
  /** The media type of the body. */
  media: Media
  /** Whether `reply` parses the body, which must then be text. */
  readsBody?: boolean
  effective: readonly (keyof Preferences)[]
  /** Makes the reply. The function must not refer to the schema: a kept request would keep a replaced schema in memory. */
  reply(row: ResultRow, estimate: number | undefined): Reply
}

const isEnabled = ({ settings }: SchemaCache, name: string): boolean =>
  /^(t|true|on|yes|1)$/i.test(settings[`pgrst.${name}`] ?? '')

interface BodySource {
  /** The relation that the rows belong to. */
  relation?: Name | undefined
  /** The media type that the called function returns itself. */
  custom?: string | undefined
}

export const mediaOf = ({ accept, query }: ApiRequest, cache: SchemaCache, { relation, custom }: BodySource): Media =>
  chooseMedia(accept, {
    hasGeoJson: cache.hasGeoJson,
    allowsPlans: isEnabled(cache, 'db_plan_enabled'),
    custom,
    handlers: {
      // The handler takes whole rows of the relation.
      own: relation && selectsRows(query.select) ? cache.handlers.get(keyOf(relation)) : undefined,
      any: cache.handlers.get(ANY_RELATION),
    },
  })

const selectsRows = ([first, ...more]: readonly SelectItem[]): boolean =>
  first?.kind === 'field' && first.field.name === '*' && !first.aggregate && more.length === 0

interface Rows {
  relation: Name
  /** The table whose rows they are; undefined for a function that returns rows of no table. */
  table: Table | undefined
  isLimited: boolean
  media: Media
}

/** Plans the rows that a request reads; the range of a GET is a window of the requested rows. */
export function planRows(
  request: ApiRequest,
  cache: SchemaCache,
  { relation, table, isLimited, media }: Rows,
): ReadNode {
  const { config, method, query } = request
  const node = planRead(
    cache,
    query,
    { relation, table },
    {
      range: method === 'GET' ? parseRange(request.range) : undefined,
      rowsMax: isLimited ? config.rowsMax : undefined,
      allowsAggregates: isEnabled(cache, 'db_aggregates_enabled'),
    },
  )
  // The aggregate takes rows of the relation as they are stored, not converted to JSON.
  if (media.handler?.relation && node.table) node.table = { ...node.table, isFormatted: false }
  return node
}

/** SQL that counts all rows, if the caller asks for it. An estimated count stops just above the limit of rows. */
export function totalSql(params: Parameters, { preferences, config }: ApiRequest, node: ReadNode, source?: string) {
  const { count } = preferences
  if (count !== 'exact' && count !== 'estimated') return undefined
  const bound = count === 'estimated' ? ` LIMIT ${config.rowsMax + 1}` : ''
  return `(SELECT count(*) FROM (${countSql(params, node, { source })}${bound}) AS pgrst_all)`
}

export function estimateStatement({ preferences }: ApiRequest, node: ReadNode): Statement | undefined {
  if (preferences.count !== 'planned' && preferences.count !== 'estimated') return undefined
  const params = new Parameters()
  return { text: `EXPLAIN (FORMAT JSON) ${countSql(params, node)}`, params: params.values }
}

/** The number of all rows, by the kind of count that the caller asks for. */
export function totalOf({ preferences, config }: ApiRequest, { total }: ResultRow, estimate: number | undefined) {
  const { count } = preferences
  if (count === undefined) return undefined
  if (count === 'planned') return estimate
  const counted = Number(total ?? 0)
  if (count === 'exact' || counted <= config.rowsMax) return counted
  return Math.max(counted, estimate ?? 0)
}

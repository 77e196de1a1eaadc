import { requestError, unfiltered } from '../data-api-error.ts'
import { computedNames, type EmbedNode, type ReadNode } from '../plan/read-plan.ts'
import type { JsonPayload } from '../request/payload.ts'
import type { Column, Table } from '../schema/types.ts'
import { BODY, type Parameters, qualified, quote } from './builder.ts'
import { logicSql, orderSql, whereSql, windowSql } from './expressions.ts'

export interface Insert {
  table: Table
  payload: JsonPayload
  columns: readonly Column[]
  /** Missing keys get the column's default instead of null. */
  fillsDefaults: boolean
  conflict?: { columns: readonly string[]; action: 'merge' | 'ignore' } | undefined
  /** The filters of a PUT, which the row of the body must match. */
  bodyFilters?: ReadNode | undefined
}

/** The setting in which an upsert counts the rows that existed before. */
const UPDATED = 'pgrst.updated'
export const UPDATED_ROWS = `coalesce(nullif(current_setting('${UPDATED}', true), '')::int, 0)`

export function insertSql(params: Parameters, insert: Insert, returning: string): string {
  const { table, columns, payload, bodyFilters } = insert
  const names = columns.map(({ name }) => quote(name)).join(', ')
  const values = columns.map(({ name }) => `pgrst_body.${quote(name)}`).join(', ')
  const target = columns.length === 0 ? '' : ` (${names})`
  const where =
    bodyFilters?.logic.map((logic) => logicSql(params, { ...bodyFilters, alias: 'pgrst_body' }, logic)) ?? []
  const from = columns.length === 0 ? rowsSql(params, payload) : bodySql(params, insert)
  return `INSERT INTO ${qualified(table)}${target} SELECT ${values} FROM ${from}${whereSql(where)}${conflictSql(insert)} RETURNING ${returning}`
}

const rowsSql = (params: Parameters, { isArray }: Insert['payload']): string =>
  isArray ? `json_array_elements(${params.add(BODY)}::json)` : '(SELECT 1) AS pgrst_body'

function conflictSql({ conflict, columns }: Insert): string {
  if (!conflict || conflict.columns.length === 0) return ''
  const target = `ON CONFLICT (${conflict.columns.map(quote).join(', ')})`
  if (conflict.action === 'ignore' || columns.length === 0) return ` ${target} DO NOTHING`
  const set = columns.map(({ name }) => `${quote(name)} = EXCLUDED.${quote(name)}`).join(', ')
  const counted = `set_config('${UPDATED}', (${UPDATED_ROWS} + 1)::text, true) <> ''`
  return ` ${target} DO UPDATE SET ${set} WHERE ${counted}`
}

type Body = Pick<Insert, 'payload' | 'columns' | 'fillsDefaults'>

/** The rows of the body with the types of the columns. */
function bodySql(params: Parameters, body: Body): string {
  const { columns } = body
  if (!columns.some(({ representation }) => representation?.fromJson)) return recordsSql(params, body)
  const values = columns.map(({ name, representation }) => {
    const parse = representation?.fromJson
    const value = `pgrst_body.${quote(name)}`
    return parse ? `${qualified(parse)}(${value}) AS ${quote(name)}` : value
  })
  return `(SELECT ${values.join(', ')} FROM ${recordsSql(params, body)}) AS pgrst_body`
}

/** Like `bodySql`, before functions convert values from JSON. */
function recordsSql(params: Parameters, { payload: { isArray }, columns, fillsDefaults }: Body): string {
  const definition = columns
    .map(({ name, type, representation }) => `${quote(name)} ${representation?.fromJson ? 'json' : type}`)
    .join(', ')
  const alias = `AS pgrst_body(${definition})`
  const defaults = fillsDefaults ? columns.filter(({ defaultSql }) => defaultSql !== null) : []
  if (defaults.length === 0) {
    return `${isArray ? 'json_to_recordset' : 'json_to_record'}(${params.add(BODY)}::json) ${alias}`
  }
  const given = `${params.add(BODY)}::jsonb`
  const filled = defaults.map(({ name, defaultSql }) => `jsonb_build_object(${params.add(name)}::text, ${defaultSql})`)
  const elements = isArray ? `jsonb_array_elements(${given})` : `(SELECT ${given} AS value)`
  return `(SELECT jsonb_agg(${filled.join(' || ')} || pgrst_element.value) AS list FROM ${elements} AS pgrst_element(value)) AS pgrst_filled,
    jsonb_to_recordset(pgrst_filled.list) ${alias}`
}

export function updateSql(
  params: Parameters,
  node: ReadNode,
  body: Body & { table: Table },
  returning: string,
): string {
  const { table, columns } = body
  if (columns.length === 0) return `SELECT ${returning} FROM ${qualified(table)} WHERE FALSE`
  const set = columns.map(({ name }) => `${quote(name)} = pgrst_body.${quote(name)}`).join(', ')
  const from = `(SELECT pgrst_body.* FROM ${bodySql(params, body)} LIMIT 1) AS pgrst_body`
  return `UPDATE ${qualified(table)} SET ${set} FROM ${from}${conditionSql(params, node, table, 'UPDATE')} RETURNING ${returning}`
}

export const deleteSql = (params: Parameters, node: ReadNode, table: Table, returning: string): string =>
  `DELETE FROM ${qualified(table)}${conditionSql(params, node, table, 'DELETE')} RETURNING ${returning}`

/**
 * SQL of the condition of a change. With a limit, it selects the first rows by the given order or by their key. A change of all rows is
 * refused, as by the extension safeupdate, which the hosted service loads.
 */
function conditionSql(params: Parameters, node: ReadNode, table: Table, verb: 'UPDATE' | 'DELETE'): string {
  const conditions = node.logic.map((logic) => logicSql(params, node, logic))
  const { limit, offset } = node.window
  if (limit === undefined && offset === 0) {
    if (conditions.length === 0) throw unfiltered(verb)
    return whereSql(conditions)
  }
  if (node.order.some(({ relation }) => relation !== undefined)) {
    throw notLimited('A limited change cannot be ordered by a column of a related table')
  }
  const key = rowKey(table).map((column) => `${quote(node.alias)}.${quote(column)}`)
  const order = orderSql(params, node, node.order) || ` ORDER BY ${key.join(', ')}`
  const rows = `SELECT ${key.join(', ')} FROM ${qualified(node.relation)}${whereSql(conditions)}${order}${windowSql(node.window)}`
  // The filters are repeated, so that Postgres checks them again for a row that another transaction has changed meanwhile.
  return whereSql([...conditions, `(${key.join(', ')}) IN (${rows})`])
}

/** The columns that identify a row: its primary key, else its place in the table. */
function rowKey({ primaryKey, kind }: Table): readonly string[] {
  if (primaryKey.length > 0) return primaryKey
  if (kind === 'table' || kind === 'partitioned') return ['tableoid', 'ctid']
  throw notLimited('A limited change of a view or a foreign table needs a primary key')
}

const notLimited = (details: string) => requestError('PGRST127', { details })

/** The columns that the reply needs: those selected, and those by which other relations are embedded. */
export function returningSql(node: ReadNode): string {
  const fields = node.fields.filter(({ field, aggregate }) => !(aggregate && field.name === '*'))
  const needsAll =
    fields.some(({ field }) => field.name === '*') ||
    node.children.some((child) => child.relationship.kind === 'computed')
  const alias = quote(node.alias)
  const ordered = node.order.flatMap(({ relation, field }) => (relation === undefined ? [field.name] : []))
  const wanted = new Set([
    ...fields.map(({ field }) => field.name),
    ...ordered,
    ...node.children.flatMap(sourceColumns),
  ])
  // Functions of the row are called here: they accept a row of the table, but not a row that the change returned.
  const computed = computedNames({ ...node, logic: [] })
  const names = needsAll ? computed : [...wanted]
  const list = names.map((name) => `${alias}.${quote(name)}`)
  return [...(needsAll ? [`${alias}.*`] : []), ...list].join(', ') || '1'
}

function sourceColumns({ relationship }: EmbedNode): string[] {
  if (relationship.kind === 'computed') return []
  const columns = relationship.kind === 'many-to-many' ? relationship.sourceColumns : relationship.columns
  return columns.map(([source]) => source)
}

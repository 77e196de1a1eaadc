import {
  computedNames,
  type EmbedNode,
  filteredChildren,
  hasAggregates,
  isHoisted,
  type ReadNode,
} from '../plan/read-plan.ts'
import type { SelectedField } from '../request/select.ts'
import { isToOne } from '../schema/types.ts'
import { castType, type Parameters, qualified, quote } from './builder.ts'
import { fieldSql, listOf, logicSql, orderSql, whereSql, windowSql } from './expressions.ts'

type Aggregation = NonNullable<SelectedField['aggregate']>

/** A selected expression, and whether rows are grouped by it. */
interface Selected {
  sql: string
  groupBy?: string | undefined
}

interface ReadOptions {
  /** A common table expression that has the rows. */
  source?: string | undefined
  /** Whether the query around this one groups by its columns. */
  isGroupedBy?: boolean
  /** The row that the rows are embedded in; without it, the row of the parent's alias. */
  parentRow?: string | undefined
}

/** SQL that reads the rows of a node. */
export function readSql(params: Parameters, node: ReadNode, options: ReadOptions = {}): string {
  const { source, isGroupedBy = false, parentRow } = options
  const isGrouped = hasAggregates(node) && !isHoisted(node)
  const comparable = isGrouped || isGroupedBy
  const namesColumns = node.fields.some(isStar) && (comparable || node.table?.isFormatted || hasComputed(node))
  const selected = [
    ...node.fields.flatMap((field, index) =>
      selectedField(params, node, { field, index, isGrouped: comparable, namesColumns }),
    ),
    ...node.children.flatMap((child) => selectedChild(node, child, comparable)),
  ]
  const columns = selected.map(({ sql }) => sql).join(', ')
  const row = rowOfSource(node, source)
  const joins = node.children
    .map((child) => joinSql(params, child, { isGroupedBy: comparable, parentRow: row }))
    .join('')
  const conditions = node.logic.map((logic) => logicSql(params, node, logic))
  const groups = isGrouped ? selected.flatMap(({ groupBy }) => groupBy ?? []) : []
  const groupBy = groups.length > 0 ? ` GROUP BY ${groups.join(', ')}` : ''
  return `SELECT ${columns} FROM ${fromSql(node, { source, parentRow })}${joins}${whereSql([...conditionsToParent(node), ...conditions])}${groupBy}${orderSql(params, node, node.order)}${windowSql(node.window)}`
}

/**
 * SQL that returns an empty row for each row of the node. Embedded rows are only tested for their presence. An embedded resource that is
 * tested several times is joined once, so that the length of the SQL does not multiply with each level.
 */
export function countSql(params: Parameters, node: ReadNode, { source, parentRow }: ReadOptions = {}): string {
  const row = rowOfSource(node, source)
  const exists = (child: EmbedNode) => `EXISTS (${countSql(params, child, { parentRow: row })})`
  const inner = node.children.filter(({ isInner }) => isInner)
  const tested = [...inner, ...filteredChildren(node)]
  const repeated = new Set(tested.filter((child, index) => tested.indexOf(child) < index))
  const presence = (child: EmbedNode) => (repeated.has(child) ? `${quote(child.alias)}.is_present` : exists(child))
  // OFFSET 0 keeps Postgres from copying the test into each place that uses it.
  const joins = [...repeated].map(
    (child) => ` CROSS JOIN LATERAL (SELECT ${exists(child)} AS is_present OFFSET 0) AS ${quote(child.alias)}`,
  )
  const conditions = node.logic.map((logic) => logicSql(params, node, logic, presence))
  const where = whereSql([...conditionsToParent(node), ...conditions, ...inner.map(presence)])
  return `SELECT 1 FROM ${fromSql(node, { source, parentRow })}${joins.join('')}${where}`
}

const isEmbed = (node: ReadNode): node is EmbedNode => 'relationship' in node

/** SQL of the row of the table, if the rows of the source also have values of functions, which a row of the table has not. */
const rowOfSource = (node: ReadNode, source: string | undefined): string | undefined =>
  source !== undefined && node.table && hasComputed(node)
    ? `ROW(${[...node.table.columns.keys()].map((name) => `${quote(node.alias)}.${quote(name)}`).join(', ')})`
    : undefined

function fromSql(node: ReadNode, { source, parentRow }: ReadOptions): string {
  const alias = quote(node.alias)
  if (source !== undefined) return `${source} AS ${alias}`
  if (!isEmbed(node)) {
    return node.alias === node.relation.name ? qualified(node.relation) : `${qualified(node.relation)} AS ${alias}`
  }
  const { relationship } = node
  if (relationship.kind === 'computed') {
    // A single name would be a column, if the row has one of that name.
    const row = parentRow ?? `${quote(node.parentAlias)}.*`
    return `${qualified(relationship.routine)}(${row}::${qualified(relationship.source)}) AS ${alias}`
  }
  const table = `${qualified(node.relation)} AS ${alias}`
  return relationship.kind === 'many-to-many'
    ? `${table}, ${qualified(relationship.junction)} AS ${junctionAlias(node)}`
    : table
}

const junctionAlias = ({ alias }: EmbedNode) => quote(`${alias}_junction`)

function conditionsToParent(node: ReadNode): string[] {
  if (!isEmbed(node)) return []
  const { relationship } = node
  if (relationship.kind === 'computed') return []
  const own = quote(node.alias)
  const parent = quote(node.parentAlias)
  if (relationship.kind !== 'many-to-many') {
    return relationship.columns.map(([source, target]) => `${own}.${quote(target)} = ${parent}.${quote(source)}`)
  }
  const junction = junctionAlias(node)
  return [
    ...relationship.targetColumns.map(([target, column]) => `${junction}.${quote(column)} = ${own}.${quote(target)}`),
    ...relationship.sourceColumns.map(
      ([source, column]) => `${junction}.${quote(column)} = ${parent}.${quote(source)}`,
    ),
  ]
}

interface FieldAt {
  field: SelectedField
  /** Its place among the fields of the node. */
  index: number
  isGrouped: boolean
  /** Whether `*` becomes the names of the table's columns. */
  namesColumns?: boolean | undefined
}

const isStar = ({ field, aggregate }: SelectedField): boolean => field.name === '*' && !aggregate

function selectedField(params: Parameters, node: ReadNode, at: FieldAt): Selected[] {
  const { field: selected, index, isGrouped, namesColumns } = at
  const { field, alias, cast, aggregate } = selected
  if (isStar(selected) && node.table && namesColumns) {
    return [...node.table.columns.keys()].flatMap((name) =>
      selectedField(params, node, { field: { kind: 'field', field: { name, path: [] } }, index, isGrouped }),
    )
  }
  const column = fieldSql(params, node, field)
  if (isStar(selected)) return [{ sql: column }]
  const format =
    aggregate || field.path.length > 0 ? undefined : node.table?.columns.get(field.name)?.representation?.toJson
  // Postgres cannot group by values of the type json.
  const formatted = format ? `${qualified(format)}(${column})${isGrouped ? '::jsonb' : ''}` : column
  const value = cast === undefined ? formatted : `CAST(${formatted} AS ${castType(cast)})`
  if (aggregate && isHoisted(node)) {
    return [{ sql: `${field.name === '*' ? '1' : value} AS ${quote(hoistedName(node, index))}` }]
  }
  const key = quote(keyOf(selected))
  if (aggregate) return [{ sql: `${aggregateSql(aggregate, field.name === '*' ? '*' : value)} AS ${key}` }]
  const isPlain = alias === undefined && cast === undefined && field.path.length === 0 && !format
  return [isPlain ? selectedColumn(column) : { sql: `${value} AS ${key}`, groupBy: value }]
}

/** Whether rows that a function or a change returned have values of functions of the row among their columns. */
const hasComputed = (node: ReadNode): boolean => computedNames(node).length > 0

const selectedColumn = (column: string): Selected => ({ sql: column, groupBy: column })

const hoistedName = ({ alias }: EmbedNode, index: number): string => `${alias}_${index}`

function aggregateSql({ name, cast }: Aggregation, value: string): string {
  const call = `${name}(${value})`
  return cast === undefined ? call : `CAST(${call} AS ${castType(cast)})`
}

/** The key of a field in JSON. */
const keyOf = ({ field, alias, aggregate }: SelectedField): string => alias ?? aggregate?.name ?? nameOf(field)

/** Without an alias, a JSON path is named after its last key. */
function nameOf({ name, path }: SelectedField['field']): string {
  const key = path.findLast((step) => typeof step.key === 'string')?.key
  return typeof key === 'string' ? key : name
}

/** A column that a node's query returns, its key in JSON, and the aggregate that is still to be applied to it. */
interface Output {
  column: string
  key: string
  aggregate?: Aggregation | undefined
}

const outputOf = (key: string): Output => ({ column: key, key })

/** The columns that a node's query returns, for a spread. Those of a function that returns no table are unknown. */
function outputsOf(node: ReadNode): Output[] {
  const own = node.fields.flatMap((selected, index): Output[] => {
    const { aggregate } = selected
    if (isStar(selected)) return [...(node.table?.columns.keys() ?? [])].map(outputOf)
    const key = keyOf(selected)
    return [aggregate && isHoisted(node) ? { column: hoistedName(node, index), key, aggregate } : outputOf(key)]
  })
  const children = node.children.filter(({ isEmpty }) => !isEmpty)
  return [...own, ...children.flatMap((child) => (child.isSpread ? spreadOutputs(node, child) : outputOf(child.key)))]
}

const spreadOutputs = (node: ReadNode, child: EmbedNode): Output[] =>
  outputsOf(child).map((output) => (isHoisted(node) && output.aggregate ? output : outputOf(output.key)))

function selectedChild(node: ReadNode, child: EmbedNode, isGrouped: boolean): Selected[] {
  if (child.isEmpty) return []
  const lateral = quote(child.alias)
  const isOne = isToOne(child.relationship)
  // Postgres cannot group by values of the type json.
  const json = isGrouped ? '::jsonb' : ''
  if (child.isSpread) return outputsOf(child).map((output) => selectedOutput(node, lateral, output))
  const value = isOne ? `row_to_json(${lateral}.*)${json}` : `coalesce(${lateral}.${listOf(child)}, '[]')${json}`
  return [{ sql: `${value} AS ${quote(child.key)}`, groupBy: value }]

  function selectedOutput(parent: ReadNode, from: string, { column, key, aggregate }: Output): Selected {
    const value = `${from}.${quote(column)}`
    if (aggregate && !isHoisted(parent)) return { sql: `${aggregateSql(aggregate, value)} AS ${quote(key)}` }
    if (isOne) return selectedColumn(value)
    const list = `coalesce(${value}, '[]')${json}`
    return { sql: `${list} AS ${quote(key)}`, groupBy: list }
  }
}

function joinSql(params: Parameters, child: EmbedNode, { isGroupedBy = false, parentRow }: ReadOptions): string {
  const lateral = quote(child.alias)
  const join = child.isInner ? ' INNER JOIN LATERAL' : ' LEFT JOIN LATERAL'
  if (isToOne(child.relationship)) {
    const query = readSql(params, withSelectedColumn(child), { isGroupedBy: isGroupedBy && child.isSpread, parentRow })
    return `${join} (${query}) AS ${lateral} ON TRUE`
  }
  const rows = quote(`${child.alias}_rows`)
  const outputs = child.isSpread ? outputsOf(child) : []
  const spread = outputs.map(({ column }) => `json_agg(${rows}.${quote(column)}) AS ${quote(column)}`)
  const list = listOf(child)
  const columns = [`json_agg(${rows}.*) AS ${list}`, ...spread].join(', ')
  const on = child.isInner ? `${lateral}.${list} IS NOT NULL` : 'TRUE'
  return `${join} (SELECT ${columns} FROM (${readSql(params, withSelectedColumn(child), { parentRow })}) AS ${rows}) AS ${lateral} ON ${on}`
}

/** Selects all columns of a node from which nothing is selected: it needs a column that shows that there is a row. */
function withSelectedColumn(child: EmbedNode): EmbedNode {
  if (child.fields.length > 0 || child.children.some(({ isEmpty }) => !isEmpty)) return child
  return { ...child, fields: [{ kind: 'field', field: { name: '*', path: [] } }] }
}

import type { EmbedNode, ReadNode } from '../plan/read-plan.ts'
import type { SelectedField } from '../request/select.ts'
import { isToOne } from '../schema/types.ts'
import { castType, type Parameters, qualified, quote } from './builder.ts'
import { fieldSql, logicSql, orderSql, windowSql } from './expressions.ts'

/** A selected expression, and whether rows are grouped by it. */
interface Selected {
  sql: string
  groupBy?: string | undefined
}

/** The query of a node: with `source`, of the rows of that common table expression. */
export function readSql(params: Parameters, node: ReadNode, source?: string): string {
  const isGrouped = node.fields.some(({ aggregate }) => aggregate)
  const selected = [
    ...node.fields.map((field) => selectedField(params, node, field)),
    ...node.children.flatMap((child) => selectedChild(child, isGrouped)),
  ]
  const columns = selected.map(({ sql }) => sql).join(', ')
  const joins = node.children.map((child) => joinSql(params, child)).join('')
  const conditions = node.logic.map((logic) => logicSql(params, node, logic))
  const groups = isGrouped ? selected.flatMap(({ groupBy }) => groupBy ?? []) : []
  const groupBy = groups.length > 0 ? ` GROUP BY ${groups.join(', ')}` : ''
  return `SELECT ${columns} FROM ${fromSql(node, source)}${joins}${whereSql([...conditionsToParent(node), ...conditions])}${groupBy}${orderSql(params, node, node.order)}${windowSql(node.window)}`
}

const whereSql = (conditions: readonly string[]): string =>
  conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`

/** The query without what it selects, with a row for each row of the node. */
export function countSql(params: Parameters, node: ReadNode, source?: string): string {
  const nullFiltered = node.logic.length > 0 ? node.children.map((child) => joinSql(params, child)).join('') : ''
  const conditions = node.logic.map((logic) => logicSql(params, node, logic))
  const inner = nullFiltered === '' ? node.children.filter(({ isInner }) => isInner) : []
  const exists = inner.map((child) => `EXISTS (${countSql(params, child)})`)
  return `SELECT 1 FROM ${fromSql(node, source)}${nullFiltered}${whereSql([...conditionsToParent(node), ...conditions, ...exists])}`
}

const isEmbed = (node: ReadNode): node is EmbedNode => 'relationship' in node

function fromSql(node: ReadNode, source: string | undefined): string {
  const alias = quote(node.alias)
  if (source !== undefined) return `${source} AS ${alias}`
  if (!isEmbed(node)) {
    return node.alias === node.relation.name ? qualified(node.relation) : `${qualified(node.relation)} AS ${alias}`
  }
  const { relationship } = node
  if (relationship.kind === 'computed') {
    const row = `${quote(node.parentAlias)}::${qualified(relationship.source)}`
    return `${qualified(relationship.routine)}(${row}) AS ${alias}`
  }
  const table = `${qualified(node.relation)} AS ${alias}`
  return relationship.kind === 'many-to-many'
    ? `${table}, ${qualified(relationship.junction)} AS ${junctionAlias(node)}`
    : table
}

const junctionAlias = ({ lateral }: EmbedNode) => quote(`${lateral}_junction`)

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

function selectedField(params: Parameters, node: ReadNode, { field, alias, cast, aggregate }: SelectedField): Selected {
  const column = fieldSql(params, node, field)
  const value = cast === undefined ? column : `CAST(${column} AS ${castType(cast)})`
  if (!aggregate) {
    const name = alias ?? nameOf(field)
    if (field.name === '*') return { sql: column }
    const isPlain = alias === undefined && cast === undefined && field.path.length === 0
    return { sql: isPlain ? column : `${value} AS ${quote(name)}`, groupBy: value }
  }
  const call = field.name === '*' ? 'count(*)' : `${aggregate.name}(${value})`
  const result = aggregate.cast === undefined ? call : `CAST(${call} AS ${castType(aggregate.cast)})`
  return { sql: `${result} AS ${quote(alias ?? aggregate.name)}` }
}

/** Without an alias, a JSON path is named after its last key. */
function nameOf({ name, path }: SelectedField['field']): string {
  const key = path.findLast((step) => typeof step.key === 'string')?.key
  return typeof key === 'string' ? key : name
}

/** The names of the columns that a node's query returns, as far as they are known: for spreads. */
function columnNames(node: ReadNode): string[] {
  const own = node.fields.flatMap(({ field, alias, aggregate }) => {
    if (field.name === '*' && !aggregate) return [...(node.table?.columns.keys() ?? [])]
    return [alias ?? aggregate?.name ?? nameOf(field)]
  })
  const children = node.children.filter(({ isEmpty }) => !isEmpty)
  return [...own, ...children.flatMap((child) => (child.isSpread ? columnNames(child) : [child.key]))]
}

function selectedChild(child: EmbedNode, isGrouped: boolean): Selected[] {
  if (child.isEmpty) return []
  const lateral = quote(child.lateral)
  const isOne = isToOne(child.relationship)
  if (child.isSpread) {
    return columnNames(child).map((name) => {
      const column = `${lateral}.${quote(name)}`
      return { sql: isOne ? column : `coalesce(${column}, '[]') AS ${quote(name)}`, groupBy: column }
    })
  }
  const json = isGrouped ? '::jsonb' : ''
  const value = isOne ? `row_to_json(${lateral}.*)${json}` : `coalesce(${lateral}.rows, '[]')${json}`
  return [{ sql: `${value} AS ${quote(child.key)}`, groupBy: value }]
}

function joinSql(params: Parameters, child: EmbedNode): string {
  const lateral = quote(child.lateral)
  const join = child.isInner ? ' INNER JOIN LATERAL' : ' LEFT JOIN LATERAL'
  if (isToOne(child.relationship)) return `${join} (${readSql(params, selectable(child))}) AS ${lateral} ON TRUE`
  const rows = quote(`${child.lateral}_rows`)
  const names = child.isSpread ? columnNames(child) : []
  const spread = names.map((name) => `json_agg(${rows}.${quote(name)}) AS ${quote(name)}`)
  const columns = [`json_agg(${rows}) AS rows`, ...spread].join(', ')
  const on = child.isInner ? `${lateral}.rows IS NOT NULL` : 'TRUE'
  return `${join} (SELECT ${columns} FROM (${readSql(params, selectable(child))}) AS ${rows}) AS ${lateral} ON ${on}`
}

/** A node from which nothing is selected still needs a column that shows that there is a row. */
function selectable(child: EmbedNode): EmbedNode {
  if (child.fields.length > 0 || child.children.some(({ isEmpty }) => !isEmpty)) return child
  return { ...child, fields: [{ kind: 'field', field: { name: '*', path: [] } }] }
}

import { type EmbedNode, filteredChild, orderedChild, type ReadNode } from '../plan/read-plan.ts'
import type { Filter, Logic, Operation } from '../request/filters.ts'
import type { OrderTerm } from '../request/order.ts'
import type { Field } from '../request/select.ts'
import { isToOne, type Name } from '../schema/types.ts'
import { arrayText, type Parameters, qualified, quote } from './builder.ts'

/** Column types that the JSON operators accept without a conversion. */
const JSON_TYPES = ['json', 'jsonb']

/** A column, and the steps into its JSON. Columns of other types become JSON first. */
export function fieldSql(params: Parameters, node: Pick<ReadNode, 'alias' | 'table'>, { name, path }: Field): string {
  const column = name === '*' ? `${quote(node.alias)}.*` : `${quote(node.alias)}.${quote(name)}`
  if (path.length === 0) return column
  const type = node.table?.columns.get(name)?.type
  // The type is unknown if a function of the row, or the called function, returns the value.
  const isJson = type !== undefined && JSON_TYPES.includes(type)
  const json = isJson ? column : `to_jsonb(${column})`
  const steps = path.map(({ asText, key }) => {
    const operand = typeof key === 'number' ? params.addTyped(String(key), 'int') : params.addTyped(key, 'text')
    return `${asText ? '->>' : '->'}${operand}`
  })
  return `(${json}${steps.join('')})`
}

/** Returns SQL that tells whether a row has embedded rows. */
type Presence = (child: EmbedNode) => string

/** Tests the join of the embedded rows, which the query must contain. */
const joinedPresence: Presence = (child) =>
  `${quote(child.alias)}${isToOne(child.relationship) ? '' : `.${listOf(child)}`} IS DISTINCT FROM NULL`

/** The column with the list of embedded rows. Those of a spread resource have columns that callers name beside it. */
export const listOf = ({ isSpread }: EmbedNode): string => (isSpread ? 'pgrst_list' : 'rows')

export function logicSql(params: Parameters, node: ReadNode, logic: Logic, presence = joinedPresence): string {
  if (logic.kind === 'filter') return filterSql(params, node, logic, presence)
  const parts = logic.parts.map((part) => logicSql(params, node, part, presence))
  return `${logic.negated ? 'NOT ' : ''}(${parts.join(logic.operator === 'and' ? ' AND ' : ' OR ')})`
}

function filterSql(params: Parameters, node: ReadNode, filter: Filter, presence: Presence): string {
  const { negated, operation } = filter
  const child = filteredChild(node, filter)
  if (child && operation.kind === 'is') {
    const isNull = (operation.value === 'null') !== negated
    return `${isNull ? 'NOT ' : ''}(${presence(child)})`
  }
  const field = fieldSql(params, node, filter.field)
  const { type, representation } = node.table?.columns.get(filter.field.name) ?? {}
  const parse = filter.field.path.length === 0 ? representation?.fromText : undefined
  const sql = operationSql(params, { field, type, operation, parse })
  return negated ? `NOT ${sql}` : sql
}

const OPERATORS = {
  ...{
    eq: '=',
    gte: '>=',
    gt: '>',
    lte: '<=',
    lt: '<',
    neq: '<>',
    like: 'LIKE',
    ilike: 'ILIKE',
    match: '~',
    imatch: '~*',
  },
  ...{ cs: '@>', cd: '<@', ov: '&&', sl: '<<', sr: '>>', nxr: '&<', nxl: '&>', adj: '-|-' },
} as const

const SEARCH = {
  fts: 'to_tsquery',
  plfts: 'plainto_tsquery',
  phfts: 'phraseto_tsquery',
  wfts: 'websearch_to_tsquery',
} as const

const IS = { null: 'NULL', not_null: 'NOT NULL', true: 'TRUE', false: 'FALSE', unknown: 'UNKNOWN' } as const

interface Compared {
  field: string
  /** Undefined if the schema cache has no such column. */
  type: string | undefined
  operation: Operation
  /** The function that converts text to the type of the column. */
  parse: Name | undefined
}

function operationSql(params: Parameters, { field, type, operation, parse }: Compared): string {
  const operandOf = (value: string) => (parse ? `${qualified(parse)}(${params.add(value)}::text)` : params.add(value))
  const listOf = (text: string) =>
    parse ? `SELECT ${qualified(parse)}(value) FROM unnest(${params.add(text)}::text[]) AS value` : params.add(text)
  switch (operation.kind) {
    case 'compare': {
      const { operator, quantifier, value } = operation
      const text = operator === 'like' || operator === 'ilike' ? value.replaceAll('*', '%') : value
      const operand = quantifier ? `${quantifier.toUpperCase()} (${listOf(text)})` : operandOf(text)
      return `${field} ${OPERATORS[operator]} ${operand}`
    }
    case 'simple':
      return `${field} ${OPERATORS[operation.operator]} ${operandOf(operation.value)}`
    case 'isdistinct':
      return `${field} IS DISTINCT FROM ${operandOf(operation.value)}`
    case 'is':
      return `${field} IS ${IS[operation.value]}`
    case 'in': {
      const { values } = operation
      const isEmpty = values.length === 1 && values[0] === ''
      return `${field} = ANY (${listOf(isEmpty ? '{}' : arrayText(values))})`
    }
    case 'search': {
      const { operator, language, value } = operation
      const config = language === undefined ? '' : `${params.addTyped(configName(language), 'regconfig')}, `
      const isText = type !== undefined && type !== 'tsvector'
      const document = isText ? `to_tsvector(${config}${field})` : field
      return `${document} @@ ${SEARCH[operator]}(${config}${params.add(value)})`
    }
  }
}

/** Postgres reads a number, or a dash, as the oid of a configuration, and fails with an internal error if there is none. */
const configName = (language: string): string => (/^(\d+|-)$/.test(language) ? quote(language) : language)

export function orderSql(params: Parameters, node: ReadNode, terms: readonly OrderTerm[]): string {
  if (terms.length === 0) return ''
  const list = terms.map((term) => {
    const target = term.relation === undefined ? node : orderedChild(node, term.relation)
    const nulls = term.nulls ? ` NULLS ${term.nulls.toUpperCase()}` : ''
    return `${fieldSql(params, target, term.field)}${term.direction === 'desc' ? ' DESC' : ''}${nulls}`
  })
  return ` ORDER BY ${list.join(', ')}`
}

export const whereSql = (conditions: readonly string[]): string =>
  conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`

export function windowSql({ limit, offset }: ReadNode['window']): string {
  const limited = limit === undefined ? '' : ` LIMIT ${limit}`
  return `${limited}${offset > 0 ? ` OFFSET ${offset}` : ''}`
}

import type { Expression, Item, Query } from './query.ts'
import { COLUMNS, type Column, TABLES, UNIFIED } from './sources.ts'
import { QueryError, TOO_LONG } from './tokens.ts'

/** An expression whose names are resolved to columns and attributes; aliases of the query are replaced. */
export type Bound =
  | Exclude<Expression, { kind: 'path' | 'quoted' | 'attribute' | 'call' }>
  | { kind: 'column'; name: Column }
  /** A missing attribute is empty in ClickHouse and null in BigQuery. */
  | { kind: 'attribute'; key: string; without: '' | null; of?: number }
  /** The column of a subquery at this position. */
  | { kind: 'derived'; place: number; name: string }
  | { kind: 'call'; name: string; args: Bound[]; distinct?: boolean }

/** The one that wins if a column and an alias have the same name. */
export type Preference = 'column' | 'alias'

/** The number of bound expressions in all SELECTs of a query. A column of a subquery counts as often as it is used. */
export interface Expansion {
  size: number
}

/** A column of a subquery, and the size of its expression. */
export interface DerivedColumn {
  name: string
  size: number
}

/** Limits expansion: chained aliases and nested subqueries could grow exponentially, in the planner or as a text. */
const SIZE_MAX = 3_000
/** A chain of operators is a tree as high as it is long. Walking it takes about 1 KiB of an isolate's stack per level. */
const HEIGHT_MAX = 400
const METADATA = ['metadata', 'log_attributes']

/** Attributes that can be read by their last name alone, below an unnested path. */
const FIELDS = [
  ...['request.method', 'request.path', 'request.pathname', 'response.status_code'],
  ...[
    'parsed.error_severity',
    'parsed.sql_state_code',
    'parsed.backend_type',
    'parsed.process_id',
    'parsed.session_id',
  ],
  ...['parsed.user_name', 'parsed.database_name', 'parsed.application_name', 'parsed.connection_from'],
]

/** Functions with an unquoted unit of time among their arguments. */
export const TRUNCATES = ['timestamp_trunc', 'datetime_trunc', 'date_trunc']
const UNIT = /^(second|minute|hour|day|week)$/i

/** Returns a function that binds the names of a query. `derived` are the columns of the subquery that it reads, if any. */
export function createBinder(query: Query, derived: readonly DerivedColumn[] | undefined, expansion: Expansion) {
  const table = query.table.toLowerCase()
  if (!TABLES.includes(table)) {
    throw new QueryError(`unknown table ${JSON.stringify(query.table)}: use one of ${TABLES.slice(0, 5).join(', ')} …`)
  }
  if (derived && query.unnested.length > 0) throw new QueryError('UNNEST is only supported with a log table')
  const isUnified = table === UNIFIED
  const tableNames = [derived ? undefined : table, query.alias].filter((name) => name !== undefined)
  const aliases = new Map((query.items === '*' ? [] : query.items).filter(isAliased).map((item) => [item.name, item]))
  const unnested = new Map<string, string[]>()
  for (const { alias, path } of query.unnested) unnested.set(alias, attributePath(path) ?? path)
  const resolving = new Set<string>()
  let height = 0

  function grow(size: number): void {
    expansion.size += size
    if (expansion.size > SIZE_MAX) throw new QueryError(TOO_LONG)
  }

  /** Returns the path below the attributes; undefined if the path is not an attribute. */
  function attributePath([first = '', ...rest]: readonly string[]): string[] | undefined {
    if (tableNames.includes(first) && rest.length > 0) return attributePath(rest)
    const prefix = unnested.get(first)
    if (prefix) return [...prefix, ...rest]
    return METADATA.includes(first) ? rest : undefined
  }

  const attribute = (key: string): Bound => ({ kind: 'attribute', key, without: isUnified ? '' : null })

  function resolveAlias(name: string): Bound | undefined {
    const item = aliases.get(name)
    if (!item || resolving.has(name)) return undefined
    resolving.add(name)
    const bound = bind(item.expression, 'column')
    resolving.delete(name)
    return bound
  }

  function path(names: readonly string[], preference: Preference): Bound {
    const [only = ''] = names
    const isSingle = names.length === 1
    const preferred = isSingle && preference === 'alias' ? resolveAlias(only) : undefined
    if (preferred) return preferred
    if (derived) return derivedColumn(names) ?? ((isSingle && resolveAlias(only)) || unknown(names))
    const attributes = attributePath(names)
    if (attributes?.length === 0) return { kind: 'column', name: 'log_attributes' }
    if (attributes) return attribute(attributes.join('.'))
    const rest = names.length > 1 && tableNames.includes(only) ? names.slice(1) : names
    const column = rest.length === 1 && COLUMNS.find((name) => name === rest[0])
    if (column) return { kind: 'column', name: column }
    const named = isSingle ? resolveAlias(only) : undefined
    return named ?? unknown(rest)
  }

  function positionOf(names: readonly string[]): number {
    const [name, ...more] = names.length > 1 && tableNames.includes(names[0] ?? '') ? names.slice(1) : names
    const place = more.length > 0 ? -1 : (derived ?? []).findIndex((column) => column.name === name)
    grow(derived?.[place]?.size ?? 0)
    return place
  }

  function derivedColumn(names: readonly string[]): Bound | undefined {
    const place = positionOf(names)
    return place < 0 ? undefined : { kind: 'derived', place, name: derived?.[place]?.name ?? '' }
  }

  function unknown(names: readonly string[]): Bound {
    const key = names.join('.')
    if (derived) {
      const names = derived.map(({ name }) => name).join(', ')
      throw new QueryError(`unknown column ${JSON.stringify(key)}: must be one of ${names}`)
    }
    if (isUnified) {
      const columns = COLUMNS.join(', ')
      throw new QueryError(
        `unknown column ${JSON.stringify(key)}: must be one of ${columns}; an attribute is written log_attributes['${key}']`,
      )
    }
    const fields = [...unnested.values()].map((prefix) => [...prefix, key].join('.'))
    return attribute(fields.find((field) => FIELDS.includes(field)) ?? key)
  }

  function bind(expression: Expression, preference: Preference): Bound {
    grow(1)
    if (expression.kind === 'path') return path(expression.names, preference)
    if (expression.kind === 'quoted') {
      return isUnified ? path([expression.value], preference) : { kind: 'text', value: expression.value }
    }
    if (expression.kind === 'attribute') {
      if (derived) {
        const of = positionOf(expression.of)
        if (of < 0) return unknown(expression.of)
        return { kind: 'attribute', key: expression.key, without: isUnified ? '' : null, of }
      }
      const prefix = attributePath(expression.of)
      if (!prefix) throw new QueryError(`${expression.of.join('.')} has no attributes: use log_attributes['…']`)
      return attribute([...prefix, expression.key].join('.'))
    }
    if (expression.kind !== 'call') return expression
    const isUnit = (arg: Expression) =>
      arg.kind === 'path' && TRUNCATES.includes(expression.name) && UNIT.test(arg.names.join('.'))
    height += 1
    if (height > HEIGHT_MAX) throw new QueryError(TOO_LONG)
    const args = expression.args.map((arg) => (isUnit(arg) ? textOf(arg) : bind(arg, preference)))
    height -= 1
    return { ...expression, args }
  }
  return bind
}

const textOf = (arg: Expression): Bound => ({ kind: 'text', value: arg.kind === 'path' ? arg.names.join('.') : '' })
const isAliased = ({ isNamed }: Item) => isNamed

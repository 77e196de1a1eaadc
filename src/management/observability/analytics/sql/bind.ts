import type { Expression, Item, Query } from './query.ts'
import { COLUMNS, type Column, TABLES, UNIFIED } from './sources.ts'
import { QueryError, TOO_LONG } from './tokens.ts'

/** An expression whose names are known: of columns and of attributes, and none of the query's own. */
export type Bound =
  | Exclude<Expression, { kind: 'path' | 'quoted' | 'attribute' | 'call' }>
  | { kind: 'column'; name: Column }
  /** Without the attribute it is empty for ClickHouse, null for BigQuery. */
  | { kind: 'attribute'; key: string; without: '' | null; of?: number }
  /** The column of a subquery at this place. */
  | { kind: 'derived'; place: number; name: string }
  | { kind: 'call'; name: string; args: Bound[]; distinct?: boolean }

/** Which wins where a column and what the query calls something have the same name. */
export type Prefer = 'column' | 'own name'

/** Short names in a chain could stand for more than anything can read. */
const SIZE_MAX = 3_000
/** A chain of operators is a tree as high as it is long, and who walks it needs about 1 KiB of an isolate's stack for each. */
const HEIGHT_MAX = 400
const METADATA = ['metadata', 'log_attributes']

/** Those that are read by their last name alone, below what is unnested. */
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

/** They take a unit of time, which is a name without quotes. */
export const TRUNCATES = ['timestamp_trunc', 'datetime_trunc', 'date_trunc']
const UNIT = /^(second|minute|hour|day|week)$/i

/** Binds the names of one query; `derived` are the columns of what it reads in the place of a table of logs. */
export function binderOf(query: Query, derived: readonly string[] | undefined) {
  const table = query.table.toLowerCase()
  if (!TABLES.includes(table)) {
    throw new QueryError(`there is no table ${JSON.stringify(query.table)}: read ${TABLES.slice(0, 5).join(', ')} …`)
  }
  if (derived && query.unnested.length > 0) throw new QueryError('UNNEST is supported beside a table of logs alone')
  const isUnified = table === UNIFIED
  const ofTable = [derived ? undefined : table, query.alias].filter((name) => name !== undefined)
  const own = new Map((query.items === '*' ? [] : query.items).filter(isOwn).map((item) => [item.name, item]))
  const unnested = new Map<string, string[]>()
  for (const { alias, path } of query.unnested) unnested.set(alias, below(path) ?? path)
  const open = new Set<string>()
  let size = 0
  let height = 0

  /** The rest of a path below the attributes; undefined for what is none of them. */
  function below([first = '', ...rest]: readonly string[]): string[] | undefined {
    if (ofTable.includes(first) && rest.length > 0) return below(rest)
    const known = unnested.get(first)
    if (known) return [...known, ...rest]
    return METADATA.includes(first) ? rest : undefined
  }

  const attribute = (key: string): Bound => ({ kind: 'attribute', key, without: isUnified ? '' : null })

  function ownName(name: string): Bound | undefined {
    const item = own.get(name)
    if (!item || open.has(name)) return undefined
    open.add(name)
    const bound = bind(item.expression, 'column')
    open.delete(name)
    return bound
  }

  function path(names: readonly string[], prefer: Prefer): Bound {
    const [only = ''] = names
    const isSingle = names.length === 1
    const preferred = isSingle && prefer === 'own name' ? ownName(only) : undefined
    if (preferred) return preferred
    if (derived) return derivedColumn(names) ?? ((isSingle && ownName(only)) || unknown(names))
    const attributes = below(names)
    if (attributes?.length === 0) return { kind: 'column', name: 'log_attributes' }
    if (attributes) return attribute(attributes.join('.'))
    const rest = names.length > 1 && ofTable.includes(only) ? names.slice(1) : names
    const column = rest.length === 1 && COLUMNS.find((name) => name === rest[0])
    if (column) return { kind: 'column', name: column }
    const named = isSingle ? ownName(only) : undefined
    return named ?? unknown(rest)
  }

  function placeOf(names: readonly string[]): number {
    const [name, ...more] = names.length > 1 && ofTable.includes(names[0] ?? '') ? names.slice(1) : names
    return more.length > 0 ? -1 : (derived ?? []).indexOf(name ?? '')
  }

  function derivedColumn(names: readonly string[]): Bound | undefined {
    const place = placeOf(names)
    return place < 0 ? undefined : { kind: 'derived', place, name: derived?.[place] ?? '' }
  }

  function unknown(names: readonly string[]): Bound {
    const key = names.join('.')
    if (derived) throw new QueryError(`there is no column ${JSON.stringify(key)}: columns are ${derived.join(', ')}`)
    if (isUnified) {
      const columns = COLUMNS.join(', ')
      throw new QueryError(
        `there is no column ${JSON.stringify(key)}: columns are ${columns}; an attribute is read as log_attributes['${key}']`,
      )
    }
    const fields = [...unnested.values()].map((prefix) => [...prefix, key].join('.'))
    return attribute(fields.find((field) => FIELDS.includes(field)) ?? key)
  }

  function bind(expression: Expression, prefer: Prefer): Bound {
    size += 1
    if (size > SIZE_MAX) throw new QueryError(TOO_LONG)
    if (expression.kind === 'path') return path(expression.names, prefer)
    if (expression.kind === 'quoted') {
      return isUnified ? path([expression.value], prefer) : { kind: 'text', value: expression.value }
    }
    if (expression.kind === 'attribute') {
      if (derived) {
        const of = placeOf(expression.of)
        if (of < 0) return unknown(expression.of)
        return { kind: 'attribute', key: expression.key, without: isUnified ? '' : null, of }
      }
      const prefix = below(expression.of)
      if (!prefix) throw new QueryError(`${expression.of.join('.')} has no attributes: read log_attributes['…']`)
      return attribute([...prefix, expression.key].join('.'))
    }
    if (expression.kind !== 'call') return expression
    const isUnit = (arg: Expression) =>
      arg.kind === 'path' && TRUNCATES.includes(expression.name) && UNIT.test(arg.names.join('.'))
    height += 1
    if (height > HEIGHT_MAX) throw new QueryError(TOO_LONG)
    const args = expression.args.map((arg) => (isUnit(arg) ? textOf(arg) : bind(arg, prefer)))
    height -= 1
    return { ...expression, args }
  }
  return bind
}

const textOf = (arg: Expression): Bound => ({ kind: 'text', value: arg.kind === 'path' ? arg.names.join('.') : '' })
const isOwn = ({ isNamed }: Item) => isNamed

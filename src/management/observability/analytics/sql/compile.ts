import { type SQL, sql } from 'drizzle-orm'
import { type Bound, createBinder, type DerivedColumn, type Expansion, TRUNCATES } from './bind.ts'
import { sourcesInCondition } from './condition-sources.ts'
import { AGGREGATES, AGGREGATES_OF_ANY, FUNCTIONS, type Signature, type Type, type Value } from './functions.ts'
import { toInstant } from './instant.ts'
import { createNumbering } from './numbering.ts'
import type { Expression, Item, Query } from './query.ts'
import { COLUMNS, type Column, rowsOfSources, type Scope, UNIFIED } from './sources.ts'
import { QueryError } from './tokens.ts'
import { applyFunction, cast, only, sumOf, typed, typeOf, wrongType } from './values.ts'

export interface Compiled {
  /** Returns one row with `rows`, a JSON array of arrays of values; null if it is longer than ANSWER_LENGTH_MAX. */
  statement: SQL
  /** The names of the values. */
  columns: string[]
  /** The sources that the query reads; undefined for all. */
  sources: readonly string[] | undefined
}

const ROWS_MAX = 1_000
export const ANSWER_LENGTH_MAX = 4 * 1024 * 1024
/** Postgres functions take at most a hundred arguments. */
const COLUMNS_MAX = 50

const COLUMN_TYPES: Record<Column, Type> = {
  id: 'text',
  timestamp: 'time',
  source: 'text',
  severity_text: 'text',
  event_message: 'text',
  log_attributes: 'attributes',
}
/** Attributes that are numbers in BigQuery; in ClickHouse all are text. */
const NUMBERS = ['response.status_code', 'execution_time_ms', 'parsed.process_id']

/** Compiles a query to SQL. Values of the query become parameters; its other parts only select among fixed texts. */
export function compileQuery(query: Query, scope: Scope & { now: Date }): Compiled {
  return new Compiler(query, scope).compile()
}

/** A subquery that another query reads. Its columns are named c0, c1 and so on. */
interface Derived extends Pick<Compiled, 'sources'> {
  rows: SQL
  columns: (DerivedColumn & { type: Type })[]
}

const columnAt = (place: number): SQL => sql`logs.${sql.raw(`c${place}`)}`
const toItem = (name: string): Item => ({ expression: { kind: 'path', names: [name] }, name, isNamed: false })

class Compiler {
  readonly #query: Query
  readonly #scope: Scope & { now: Date }
  readonly #expansion: Expansion
  readonly #from: Derived | undefined
  readonly #bind: ReturnType<typeof createBinder>
  readonly #items: Item[]
  readonly #keyOf = createNumbering()
  readonly #groups = new Map<number, Value>()
  #isGrouped = false
  #isInAggregate = false
  /** Whether a subquery after IN reads other sources. */
  #readsOthers = false

  constructor(query: Query, scope: Scope & { now: Date }, expansion: Expansion = { size: 0 }) {
    this.#query = query
    this.#scope = scope
    this.#expansion = expansion
    this.#from = query.from && new Compiler(query.from, scope, expansion).derive()
    const derived = this.#from?.columns
    this.#bind = createBinder(query, derived, expansion)
    this.#items = query.items === '*' ? (derived?.map(({ name }) => toItem(name)) ?? everyColumn(query)) : query.items
  }

  compile(): Compiled {
    const { limit } = this.#query
    const { select, names, columns, sources } = this.#select((value) => this.#output(value))
    // Rows beyond the maximum length of the answer are dropped.
    const statement = sql`
      with answer as (${select} limit ${Math.min(limit ?? ROWS_MAX, ROWS_MAX)} offset ${this.#query.offset ?? 0}),
      measured as (select *, sum(length(answer::text)) over (rows unbounded preceding) <= ${ANSWER_LENGTH_MAX} as fits from answer)
      select case when coalesce(bool_and(fits), true)
        then coalesce(json_agg(json_build_array(${list(names)})) filter (where fits), '[]') end as rows from measured`
    return { statement, columns, sources }
  }

  /** Compiles a subquery, whose values keep their types. */
  derive(): Derived {
    const { limit, offset } = this.#query
    const { select, columns, types, sizes, sources } = this.#select(typed)
    if (types.includes('interval')) throw new QueryError('an interval cannot be selected')
    const bound = sql`${limit === undefined ? sql`` : sql`limit ${limit}`} ${offset ? sql`offset ${offset}` : sql``}`
    return {
      rows: sql`${select} ${bound}`,
      columns: columns.map((name, n) => ({ name, type: types[n] ?? 'null', size: sizes[n] ?? 0 })),
      sources,
    }
  }

  #select(output: (value: Value) => SQL) {
    const { distinct, groupBy, having, orderBy, where } = this.#query
    const bound = where && this.#bind(where, 'column')
    const name = this.#query.table.toLowerCase()
    const readSources = name === UNIFIED ? bound && sourcesInCondition(bound) : [name]
    const condition = bound ? this.#condition(bound, 'WHERE') : sql`true`
    const sizes: number[] = []
    const items = this.#items.map(({ expression }) => {
      const before = this.#expansion.size
      const item = this.#bind(expression, 'column')
      sizes.push(this.#expansion.size - before)
      return item
    })
    const order = orderBy.map(({ expression, descending }) => ({
      by: this.#bindPreferringAlias(expression),
      descending,
    }))
    const table = this.#from?.rows ?? rowsOfSources(this.#scope, { sources: readSources, order: orderOfTime(order[0]) })
    const groups = groupBy.map((expression) => this.#bindPreferringAlias(expression))
    const keys = this.#group(distinct ? [...groups, ...items] : groups)
    this.#isGrouped =
      keys.length > 0 || [...items, ...order.map(({ by }) => by)].some(hasAggregate) || having !== undefined
    const values = items.map((item) => this.#value(item))
    const { names, columns } = this.#columns()
    const select = sql`
        select ${list(values.map((value, n) => sql`${output(value)} as ${names[n]}`))}
        from (select ${list([sql`logs.*`, ...keys])} from (${table}) as logs where ${condition}) as logs
        ${this.#groups.size > 0 ? sql`group by ${list([...this.#groups.values()].map((group) => group.sql))}` : sql``}
        ${having ? sql`having ${this.#condition(this.#bind(having, 'alias'), 'HAVING')}` : sql``}
        ${order.length > 0 ? sql`order by ${list(order.map((one) => this.#orderTerm(one)))}` : sql``}`
    const sources = this.#readsOthers ? undefined : this.#from ? this.#from.sources : readSources
    return { select, names, columns, types: values.map(({ type }) => type), sizes, sources }
  }

  /** Binds an expression in which a number such as `2` means the second selected column. */
  #bindPreferringAlias(expression: Expression): Bound {
    if (expression.kind !== 'number') return this.#bind(expression, 'alias')
    const item = this.#items[expression.value - 1]
    if (!item)
      throw new QueryError(`unknown column ${expression.value}: the position must be that of a selected column`)
    return this.#bind(item.expression, 'column')
  }

  #columns(): { names: SQL[]; columns: string[] } {
    if (this.#items.length > COLUMNS_MAX)
      throw new QueryError(`too many columns: at most ${COLUMNS_MAX} can be selected`)
    const columns = this.#items.map(({ name }) => name)
    const duplicate = columns.find((name, n) => columns.indexOf(name) < n)
    if (duplicate !== undefined)
      throw new QueryError(`duplicate column ${JSON.stringify(duplicate)}: rename one with AS`)
    return { names: columns.map((_, n) => sql.raw(`c${n}`)), columns }
  }

  /** Adds a column for each group key, because the same expression elsewhere has other parameters. */
  #group(expressions: readonly Bound[]): SQL[] {
    if (expressions.some(hasAggregate)) throw new QueryError('GROUP BY cannot contain an aggregate')
    const groupKeys = expressions.map((expression) => ({
      key: this.#keyOf(expression),
      value: this.#value(expression),
    }))
    const keys: SQL[] = []
    for (const { key, value } of groupKeys) {
      if (this.#groups.has(key)) continue
      const name = sql.raw(`g${keys.length}`)
      keys.push(sql`${typed(value)} as ${name}`)
      this.#groups.set(key, { type: value.type, sql: sql`logs.${name}` })
    }
    return keys
  }

  #condition(expression: Bound, clause: string): SQL {
    if (clause === 'WHERE' && hasAggregate(expression))
      throw new QueryError('WHERE cannot contain an aggregate: use HAVING')
    return cast(this.#value(expression), 'boolean', clause)
  }

  #orderTerm({ by, descending }: { by: Bound; descending: boolean }): SQL {
    const value = this.#value(by)
    // A time is never null, and `nulls last` would not match the index.
    const nulls = value.type === 'time' ? sql`` : sql`nulls last`
    return descending ? sql`${typed(value)} desc ${nulls}` : typed(value)
  }

  #output(value: Value): SQL {
    if (value.type === 'interval') throw new QueryError('an interval cannot be selected')
    if (value.type !== 'time') return typed(value)
    return this.#query.table.toLowerCase() === UNIFIED
      ? sql`to_char(${value.sql} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
      : sql`floor(extract(epoch from ${value.sql}) * 1000000)`
  }

  #value(expression: Bound): Value {
    const group = this.#isInAggregate ? undefined : this.#groups.get(this.#keyOf(expression))
    if (group) return group
    switch (expression.kind) {
      case 'text':
        return { type: 'text', sql: sql`${expression.value}::text` }
      case 'number':
        if (!Number.isFinite(expression.value)) throw new QueryError('a number is too large')
        return { type: 'number', sql: sql`${String(expression.value)}::numeric` }
      case 'boolean':
        return { type: 'boolean', sql: sql`${String(expression.value)}::boolean` }
      case 'null':
        return { type: 'null', sql: sql`null` }
      case 'interval':
        return { type: 'interval', sql: sql`${`${expression.count} ${expression.unit}`}::interval` }
      case 'column':
        this.#requireGrouped(expression.name)
        return { type: COLUMN_TYPES[expression.name], sql: sql`logs.${sql.raw(expression.name)}` }
      case 'derived':
        this.#requireGrouped(expression.name)
        return { type: this.#from?.columns[expression.place]?.type ?? 'null', sql: columnAt(expression.place) }
      case 'attribute':
        this.#requireGrouped(expression.key)
        return this.#attribute(expression)
      case 'query':
        throw new QueryError('a subquery is only supported in FROM and after IN')
      case 'call':
        return this.#call(expression)
    }
  }

  #attribute(expression: Bound & { kind: 'attribute' }): Value {
    const { of } = expression
    if (of === undefined) return attribute(expression, sql`logs.log_attributes`)
    const column = this.#from?.columns[of]
    if (column?.type !== 'attributes') throw new QueryError(`${column?.name} has no attributes`)
    return attribute(expression, columnAt(of))
  }

  #inSubquery(expression: Bound, query: Query): Value {
    const { rows, columns } = new Compiler(query, this.#scope, this.#expansion).derive()
    const [column, ...others] = columns
    if (!column || others.length > 0) throw new QueryError('the subquery after IN must select one column')
    this.#readsOthers = true
    return { type: 'boolean', sql: sql`(${cast(this.#value(expression), column.type, 'IN')} in (${rows}))` }
  }

  #requireGrouped(name: string): void {
    if (this.#isGrouped && !this.#isInAggregate) throw new QueryError(`${name} must be in GROUP BY or in an aggregate`)
  }

  #call({ name, args, distinct }: Bound & { kind: 'call' }): Value {
    if (isAggregate(name)) return this.#aggregate(name, args, distinct ?? false)
    if (distinct) throw new QueryError(`DISTINCT is only for aggregates: ${name} is not an aggregate`)
    if (NOW.includes(name)) return this.#time(this.#scope.now.toISOString())
    if (TRUNCATES.includes(name)) return this.#truncate(name, args)
    if (name === 'in' && args[1]?.kind === 'query') return this.#inSubquery(args[0] as Bound, args[1].query)
    const values = args.map((arg) => this.#value(arg))
    const signature = Object.hasOwn(FUNCTIONS, name) && FUNCTIONS[name]
    return signature ? applyFunction(name, signature, values) : this.#general(name, args, values)
  }

  #aggregate(name: string, args: Bound[], distinct: boolean): Value {
    if (this.#isInAggregate) throw new QueryError(`${name} cannot be inside another aggregate`)
    if (name === 'count' && args.length === 0) return { type: 'number', sql: sql`count(*)` }
    if (name === 'quantile' && args[0]?.kind !== 'number') throw new QueryError('quantile is written quantile(0.95)(x)')
    this.#isInAggregate = true
    const values = args.map((arg) => this.#value(arg))
    this.#isInAggregate = false
    if (distinct && !DISTINCT_AGGREGATES.includes(name)) throw new QueryError(`${name} does not support DISTINCT`)
    const signature = AGGREGATES[name]
    if (signature) return applyFunction(name, distinct ? withDistinct(signature) : signature, values)
    const [value] = values
    if (!value || values.length > 1) throw new QueryError(`${name} takes one value`)
    const { gives, write } = AGGREGATES_OF_ANY[name] as (typeof AGGREGATES_OF_ANY)[string]
    if (!gives && ['boolean', 'attributes'].includes(value.type))
      throw wrongType(name, 'text, a number or a time', value)
    return { type: gives ?? value.type, sql: write(distinct ? sql`distinct ${typed(value)}` : typed(value)) }
  }

  #time = (instant: string): Value => ({ type: 'time', sql: sql`${instant}::timestamptz` })

  /** Converts a text to a time if a time is required. */
  #timeOf(expression: Bound, value: Value): Value {
    if (expression.kind !== 'text') return value
    const text = expression.value.trim().replace(' ', 'T')
    const zoned = /[zZ]$|[-+]\d\d:?\d\d$/.test(text) ? text : `${text}${text.includes('T') ? 'Z' : ''}`
    if (Number.isNaN(Date.parse(zoned))) throw new QueryError(`invalid time ${JSON.stringify(expression.value)}`)
    return this.#time(toInstant(zoned))
  }

  #truncate(name: string, args: Bound[]): Value {
    const units = args.flatMap((arg) =>
      arg.kind === 'text' ? UNITS.filter((unit) => unit === arg.value.toLowerCase()) : [],
    )
    const at = args.find((arg) => arg.kind !== 'text')
    if (!at || args.length > 2 || units.length !== 1) {
      throw new QueryError(`${name} takes a time and one of ${UNITS.join(', ')}`)
    }
    return applyFunction(name, FUNCTIONS.tostartofinterval as Signature, [
      this.#value(at),
      { type: 'interval', sql: sql`${`1 ${units[0]}`}::interval` },
    ])
  }

  /** Compiles functions that take values of any type. */
  #general(name: string, args: Bound[], values: Value[]): Value {
    if (['=', '<>', '<', '<=', '>', '>='].includes(name)) {
      const [one, other] = this.#toCommonType(args, values)
      return { type: 'boolean', sql: sql`(${one} ${sql.raw(name)} ${other})` }
    }
    if (name === 'in') {
      const [one, ...others] = this.#toCommonType(args, values)
      return { type: 'boolean', sql: sql`(${one} in (${list(others)}))` }
    }
    if (name === 'isnull') return { type: 'boolean', sql: sql`(${typed(only(name, values))} is null)` }
    if (name === '+' || name === '-') return sumOf(name, values)
    if (TO_TIME.includes(name)) {
      const [at] = args
      const [value] = values
      if (!at || !value) throw new QueryError(`${name} takes a time`)
      return { type: 'time', sql: cast(this.#timeOf(at, value), 'time', name) }
    }
    if (TO_TEXT.includes(name)) return { type: 'text', sql: sql`${this.#output(only(name, values))}::text` }
    if (TO_NUMBER.includes(name)) {
      const value = only(name, values)
      return value.type === 'number' ? value : applyFunction(name, FUNCTIONS.toint64 as Signature, [value])
    }
    if (name === 'coalesce' || name === 'ifnull') {
      const type = typeOf(values)
      return { type, sql: sql`coalesce(${list(this.#toCommonType(args, values))})` }
    }
    if (name === 'nullif' && values.length === 2) {
      return { type: typeOf(values), sql: sql`nullif(${list(this.#toCommonType(args, values))})` }
    }
    if (name === 'if' || name === 'multiif') return this.#choice(name, args, values)
    throw new QueryError(`the function ${name} is not supported`)
  }

  #choice(name: string, args: Bound[], values: Value[]): Value {
    if (values.length < 3 || values.length % 2 === 0)
      throw new QueryError(`${name} takes conditions, values and one value`)
    const isCondition = (n: number) => n % 2 === 0 && n < values.length - 1
    const chosen = values.filter((_, n) => !isCondition(n))
    const results = this.#toCommonType(
      args.filter((_, n) => !isCondition(n)),
      chosen,
    )
    const cases = values.flatMap((value, n) =>
      isCondition(n) ? [sql`when ${cast(value, 'boolean', name)} then ${results[n / 2]}`] : [],
    )
    return { type: typeOf(chosen), sql: sql`case ${sql.join(cases, sql` `)} else ${results.at(-1)} end` }
  }

  /** Casts values to their common type; a text may become a time. */
  #toCommonType(args: Bound[], values: Value[]): SQL[] {
    const type = typeOf(values)
    const types = values.map((value) => value.type)
    if (types.includes('text') && types.includes('number')) throw new QueryError(TEXT_AND_NUMBER)
    return values.map((value, n) => {
      const isTime = type === 'time' && value.type === 'text' && args[n]
      return cast(isTime ? this.#timeOf(isTime, value) : value, type, 'a comparison')
    })
  }
}

const orderOfTime = (first?: { by: Bound; descending: boolean }) => {
  if (first?.by.kind !== 'column' || first.by.name !== 'timestamp') return undefined
  return first.descending ? 'desc' : 'asc'
}

/** Aggregates that support DISTINCT. */
const DISTINCT_AGGREGATES = ['count', 'sum', 'avg', 'min', 'max', 'any', 'any_value']
const withDistinct = ({ sql: write, ...rest }: Signature): Signature => ({
  ...rest,
  sql: (value) => write(sql`distinct ${value}`),
})
const TEXT_AND_NUMBER = 'text and numbers cannot be compared or mixed: convert the text with toInt64OrZero(…)'
const UNITS = ['second', 'minute', 'hour', 'day', 'week']
const NOW = ['now', 'now64', 'current_timestamp', 'current_datetime']
const TO_TIME = [
  ...['timestamp', 'datetime', 'todatetime', 'todatetime64', 'parsedatetimebesteffort', 'parsedatetime64besteffort'],
  ...['cast as timestamp', 'cast as datetime', 'cast as datetime64'],
]
const TO_TEXT = ['tostring', 'cast as string', 'cast as text', 'cast as varchar']
const TO_NUMBER = ['int64', 'int', 'integer', 'bigint', 'float64', 'numeric', 'int32', 'uint32', 'uint64'].map(
  (type) => `cast as ${type}`,
)

const list = (parts: readonly (SQL | undefined)[]): SQL => sql.join([...parts], sql`, `)
const isAggregate = (name: string) => Object.hasOwn(AGGREGATES, name) || Object.hasOwn(AGGREGATES_OF_ANY, name)
const hasAggregate = (expression: Bound): boolean =>
  expression.kind === 'call' && (isAggregate(expression.name) || expression.args.some(hasAggregate))

const everyColumn = ({ table }: Query): Item[] =>
  COLUMNS.filter((name) => table.toLowerCase() === UNIFIED || !['source', 'severity_text'].includes(name)).map(
    (name) => ({
      expression: { kind: 'path', names: [name] },
      name: table.toLowerCase() !== UNIFIED && name === 'log_attributes' ? 'metadata' : name,
      isNamed: false,
    }),
  )

function attribute({ key, without }: Bound & { kind: 'attribute' }, of: SQL): Value {
  const text = sql`(${of} ->> ${key}::text)`
  if (without === '') return { type: 'text', sql: sql`coalesce(${text}, '')` }
  return NUMBERS.includes(key) ? { type: 'number', sql: sql`${text}::numeric` } : { type: 'text', sql: text }
}

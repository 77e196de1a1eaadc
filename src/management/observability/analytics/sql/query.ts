/** An expression of a query. Operators and `case` are calls such as `=`, `and`, `in` and `multiif`, with lower-case names. */
export type Expression =
  | { kind: 'text'; value: string }
  | { kind: 'number'; value: number }
  | { kind: 'boolean'; value: boolean }
  | { kind: 'null' }
  /** In double quotes: a name in ClickHouse, a text in BigQuery. */
  | { kind: 'quoted'; value: string }
  | { kind: 'interval'; count: number; unit: string }
  /** A path such as `m.request.method`, in its original spelling. */
  | { kind: 'path'; names: string[] }
  /** An attribute such as `log_attributes['level']`. */
  | { kind: 'attribute'; of: string[]; key: string }
  | { kind: 'call'; name: string; args: Expression[]; distinct?: boolean }
  /** A subquery after IN. */
  | { kind: 'query'; query: Query }

export interface Item {
  expression: Expression
  /** The name of the column in the result. */
  name: string
  isNamed: boolean
}

export interface Query {
  distinct: boolean
  /** `*` for all columns. */
  items: Item[] | '*'
  /** The log table; with a nested `from`, that of the innermost query. */
  table: string
  /** The subquery or common table expression that is read instead of the table. */
  from: Query | undefined
  alias: string | undefined
  /** The alias and path of `cross join unnest(m.request) as request`. */
  unnested: { alias: string; path: string[] }[]
  where: Expression | undefined
  groupBy: Expression[]
  having: Expression | undefined
  orderBy: { expression: Expression; descending: boolean }[]
  limit: number | undefined
  offset: number | undefined
}

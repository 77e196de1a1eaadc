/** Operators and `case` are calls too: `=`, `and`, `in`, `like`, `multiif`. Names of calls are in lower case. */
export type Expression =
  | { kind: 'text'; value: string }
  | { kind: 'number'; value: number }
  | { kind: 'boolean'; value: boolean }
  | { kind: 'null' }
  /** In double quotes: a name or a text, by who reads the table. */
  | { kind: 'quoted'; value: string }
  | { kind: 'interval'; count: number; unit: string }
  /** `m.request.method`, as it is spelled. */
  | { kind: 'path'; names: string[] }
  /** `log_attributes['level']` */
  | { kind: 'attribute'; of: string[]; key: string }
  | { kind: 'call'; name: string; args: Expression[]; distinct?: boolean }
  /** After IN. */
  | { kind: 'query'; query: Query }

export interface Item {
  expression: Expression
  /** What its column is called in the answer. */
  name: string
  isNamed: boolean
}

export interface Query {
  distinct: boolean
  /** `*` for all columns. */
  items: Item[] | '*'
  /** Of the logs, at the bottom where `from` is nested. */
  table: string
  /** A subquery or a common table expression that is read in the place of the table. */
  from: Query | undefined
  alias: string | undefined
  /** `cross join unnest(m.request) as request`: the alias and the path that it stands for. */
  unnested: { alias: string; path: string[] }[]
  where: Expression | undefined
  groupBy: Expression[]
  having: Expression | undefined
  orderBy: { expression: Expression; descending: boolean }[]
  limit: number | undefined
  offset: number | undefined
}

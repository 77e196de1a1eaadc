import type { Expression, Item, Query } from './query.ts'
import { QueryError, type Token, tokensOf } from './tokens.ts'

const DEPTH_MAX = 50
const QUERIES_MAX = 10
const UNIT = /^(second|minute|hour|day|week)s?$/i
/** Operators by increasing precedence. */
const BINARY: readonly (readonly string[])[] = [
  ['||', '+', '-'],
  ['*', '/', '%'],
]
const COMPARISONS: Record<string, string> = { '==': '=', '!=': '<>' }
const COMPARES = ['=', '==', '!=', '<>', '<', '<=', '>', '>=']
/** Words that cannot be an alias without `as`. */
const RESERVED = ['from', 'where', 'group', 'having', 'order', 'limit', 'offset', 'cross', 'left', 'join', 'on', 'as']
const ENDS_EXPRESSION = [...RESERVED, 'and', 'or', 'then', 'else', 'when', 'end', 'asc', 'desc', 'is', 'in', 'like']

/** Parses a query in the common subset of ClickHouse SQL and BigQuery SQL. Throws QueryError. */
export function parseQuery(text: string): Query {
  return new Parser(text).query()
}

class Parser {
  readonly #text: string
  readonly #tokens: Token[]
  /** Common table expressions by their names in lower case. */
  readonly #tables = new Map<string, Query>()
  #at = 0
  #depth = 0
  #queries = 0

  constructor(text: string) {
    this.#text = text
    this.#tokens = tokensOf(text)
  }

  query(): Query {
    if (this.#skipWord('with')) {
      this.#list(() => {
        const name = this.#name('the name of a common table expression').toLowerCase()
        this.#expectWord('as')
        this.#tables.set(name, this.#parseSubquery())
      })
    }
    const query = this.#select()
    this.#skipSign(';')
    if (this.#next.kind !== 'end') throw this.#unexpected('the end of the query')
    return query
  }

  #parseSubquery(): Query {
    this.#expectSign('(')
    const query = this.#select()
    this.#expectSign(')')
    return query
  }

  #select(): Query {
    this.#queries += 1
    if (this.#queries > QUERIES_MAX) throw new QueryError(`the query has more than ${QUERIES_MAX} SELECTs`)
    this.#expectWord('select')
    const distinct = this.#skipWord('distinct')
    const items = this.#skipSign('*') ? ('*' as const) : this.#list(() => this.#item())
    this.#expectWord('from')
    return {
      ...{ distinct, items, ...this.#from(), unnested: this.#unnestClauses() },
      where: this.#skipWord('where') ? this.#expression() : undefined,
      groupBy: this.#skipWord('group') ? this.#byList() : [],
      having: this.#skipWord('having') ? this.#expression() : undefined,
      orderBy: this.#skipWord('order') ? this.#orderBy() : [],
      limit: this.#skipWord('limit') ? this.#wholeNumber() : undefined,
      offset: this.#skipWord('offset') ? this.#wholeNumber() : undefined,
    }
  }

  #from(): Pick<Query, 'table' | 'alias' | 'from'> {
    if (this.#isSign('(')) {
      const from = this.#parseSubquery()
      return { table: from.table, alias: this.#alias(), from }
    }
    const table = this.#name('the name of a table')
    const from = this.#tables.get(table.toLowerCase())
    const alias = this.#alias()
    return from ? { table: from.table, alias: alias ?? table, from } : { table, alias, from }
  }

  #item(): Item {
    const { from } = this.#next
    const expression = this.#expression()
    const to = this.#tokens[this.#at - 1]?.to ?? from
    const alias = this.#alias()
    return { expression, name: alias ?? nameOf(expression, this.#text.slice(from, to)), isNamed: alias !== undefined }
  }

  #alias(): string | undefined {
    if (this.#skipWord('as')) return this.#name('a name')
    const { kind, value } = this.#next
    const isName = kind === 'quoted' || (kind === 'name' && !RESERVED.includes(value.toLowerCase()))
    return isName ? this.#take().value : undefined
  }

  #unnestClauses(): Query['unnested'] {
    const unnested: Query['unnested'] = []
    for (;;) {
      const isLeft = this.#skipWord('left')
      if (isLeft || this.#skipWord('cross')) this.#expectWord('join')
      else if (!this.#skipSign(',')) break
      if (!this.#skipWord('unnest')) throw new QueryError('a join is only supported with UNNEST, such as of `metadata`')
      this.#expectSign('(')
      const path = this.#path(this.#name('a path'))
      this.#expectSign(')')
      unnested.push({ alias: this.#alias() ?? path.at(-1) ?? '', path })
      if (isLeft && this.#skipWord('on')) this.#expectWord('true')
    }
    if (this.#isWord('join')) throw new QueryError('a join is only supported with UNNEST, such as of `metadata`')
    return unnested
  }

  #byList(): Expression[] {
    this.#expectWord('by')
    return this.#list(() => this.#expression())
  }

  #orderBy(): Query['orderBy'] {
    this.#expectWord('by')
    return this.#list(() => {
      const expression = this.#expression()
      const descending = this.#skipWord('desc')
      if (!descending) this.#skipWord('asc')
      return { expression, descending }
    })
  }

  #wholeNumber(): number {
    const token = this.#take()
    if (token.kind !== 'number' || !/^\d{1,9}$/.test(token.value)) throw this.#unexpected('a whole number', token)
    return Number(token.value)
  }

  #expression(): Expression {
    this.#depth += 1
    if (this.#depth > DEPTH_MAX) throw new QueryError('the query is nested too deeply')
    let left = this.#conjunction()
    while (this.#skipWord('or')) left = call('or', left, this.#conjunction())
    this.#depth -= 1
    return left
  }

  #conjunction(): Expression {
    let left = this.#negation()
    while (this.#skipWord('and')) left = call('and', left, this.#negation())
    return left
  }

  #negation(): Expression {
    let negated = false
    while (this.#skipWord('not')) negated = !negated
    const condition = this.#condition()
    return negated ? call('not', condition) : condition
  }

  #condition(): Expression {
    const left = this.#binary(0)
    if (this.#skipWord('is')) {
      const negated = this.#skipWord('not')
      this.#expectWord('null')
      return negate(negated, call('isnull', left))
    }
    const sign = this.#next.kind === 'sign' ? this.#next.value : ''
    if (COMPARES.includes(sign)) {
      this.#take()
      return call(COMPARISONS[sign] ?? sign, left, this.#binary(0))
    }
    const negated = this.#skipWord('not')
    if (this.#skipWord('in')) return negate(negated, call('in', left, ...this.#inOperand()))
    if (this.#skipWord('like')) return negate(negated, call('like', left, this.#binary(0)))
    if (this.#skipWord('ilike')) return negate(negated, call('ilike', left, this.#binary(0)))
    if (this.#skipWord('between')) {
      const from = this.#binary(0)
      this.#expectWord('and')
      return negate(negated, call('and', call('>=', left, from), call('<=', left, this.#binary(0))))
    }
    if (negated) throw this.#unexpected('IN, LIKE, ILIKE or BETWEEN')
    return left
  }

  #binary(level: number): Expression {
    const signs = BINARY[level]
    if (!signs) return this.#unary()
    let left = this.#binary(level + 1)
    while (this.#next.kind === 'sign' && signs.includes(this.#next.value)) {
      const sign = this.#take().value
      left = call(sign, left, this.#binary(level + 1))
    }
    return left
  }

  #unary(): Expression {
    return this.#skipSign('-') ? call('-', { kind: 'number', value: 0 }, this.#primary()) : this.#primary()
  }

  #primary(): Expression {
    const token = this.#take()
    if (token.kind === 'text') return { kind: 'text', value: token.value }
    if (token.kind === 'number') return { kind: 'number', value: Number(token.value) }
    if (token.kind === 'sign' && token.value === '(') {
      if (this.#isWord('select')) throw new QueryError(MISPLACED)
      const inner = this.#expression()
      this.#expectSign(')')
      return inner
    }
    if (token.kind === 'quoted' && !this.#isSign('.') && !this.#isSign('['))
      return { kind: 'quoted', value: token.value }
    if (token.kind === 'quoted') return this.#pathOrAttribute(token.value)
    if (token.kind !== 'name') throw this.#unexpected('a value', token)
    return this.#nameExpression(token)
  }

  #nameExpression(token: Token): Expression {
    const word = token.value.toLowerCase()
    if (word === 'true' || word === 'false') return { kind: 'boolean', value: word === 'true' }
    if (word === 'null') return { kind: 'null' }
    if (word === 'case') return this.#case()
    if (word === 'interval') return this.#interval()
    if (this.#isSign('(')) return this.#call(word)
    if (ENDS_EXPRESSION.includes(word)) throw this.#unexpected('a value', token)
    return this.#pathOrAttribute(token.value)
  }

  #pathOrAttribute(first: string): Expression {
    const names = this.#path(first)
    if (!this.#skipSign('[')) return { kind: 'path', names }
    const key = this.#take()
    if (key.kind !== 'text') throw this.#unexpected('the name of an attribute in quotes', key)
    this.#expectSign(']')
    return { kind: 'attribute', of: names, key: key.value }
  }

  #call(name: string): Expression {
    if (name === 'cast' || name === 'safe_cast') return this.#cast()
    this.#expectSign('(')
    if (this.#skipSign('*')) {
      this.#expectSign(')')
      if (name !== 'count') throw new QueryError(`${name}(*) is not supported`)
      return call(name)
    }
    const distinct = this.#skipWord('distinct')
    const args = this.#skipSign(')') ? [] : this.#list(() => this.#expression())
    if (args.length > 0) this.#expectSign(')')
    // Aggregates with parameters of their own: quantile(0.95)(x).
    const more = this.#isSign('(') ? this.#parenthesized() : []
    return { ...call(name, ...args, ...more), ...(distinct && { distinct }) }
  }

  #cast(): Expression {
    this.#expectSign('(')
    const value = this.#expression()
    this.#expectWord('as')
    const type = this.#name('a type').toLowerCase()
    this.#expectSign(')')
    return call(`cast as ${type}`, value)
  }

  #case(): Expression {
    const parts: Expression[] = []
    while (this.#skipWord('when')) {
      parts.push(this.#expression())
      this.#expectWord('then')
      parts.push(this.#expression())
    }
    if (parts.length === 0) throw this.#unexpected('WHEN')
    parts.push(this.#skipWord('else') ? this.#expression() : { kind: 'null' })
    this.#expectWord('end')
    return call('multiif', ...parts)
  }

  #interval(): Expression {
    const token = this.#take()
    const [, count = '', inText] = /^(\d{1,7})(?:\s+(\w+))?$/.exec(token.value) ?? []
    const [, unit] = UNIT.exec(inText ?? this.#name('a unit of time')) ?? []
    if (!unit || count === '') throw this.#unexpected('an interval such as INTERVAL 5 MINUTE', token)
    return { kind: 'interval', count: Number(count), unit: unit.toLowerCase() }
  }

  #inOperand(): Expression[] {
    const after = this.#tokens[this.#at + 1]
    const isQuery = this.#isSign('(') && after?.kind === 'name' && after.value.toLowerCase() === 'select'
    return isQuery ? [{ kind: 'query', query: this.#parseSubquery() }] : this.#parenthesized()
  }

  #parenthesized(): Expression[] {
    this.#expectSign('(')
    const values = this.#list(() => this.#expression())
    this.#expectSign(')')
    return values
  }

  #path(first: string): string[] {
    const names = [first]
    while (this.#skipSign('.')) names.push(this.#name('a name'))
    return names
  }

  #list<T>(read: () => T): T[] {
    const values = [read()]
    while (this.#skipSign(',')) values.push(read())
    return values
  }

  #name(expected: string): string {
    const token = this.#take()
    if (token.kind !== 'name' && token.kind !== 'quoted') throw this.#unexpected(expected, token)
    return token.value
  }

  get #next(): Token {
    return this.#tokens[this.#at] as Token
  }

  #take(): Token {
    const token = this.#next
    if (token.kind !== 'end') this.#at += 1
    return token
  }

  #isSign = (sign: string) => this.#next.kind === 'sign' && this.#next.value === sign
  #isWord = (word: string) => this.#next.kind === 'name' && this.#next.value.toLowerCase() === word
  #skipSign = (sign: string) => this.#isSign(sign) && this.#take() !== undefined
  #skipWord = (word: string) => this.#isWord(word) && this.#take() !== undefined

  #expectSign(sign: string): void {
    if (!this.#skipSign(sign)) throw this.#unexpected(`"${sign}"`)
  }

  #expectWord(word: string): void {
    if (!this.#skipWord(word)) throw this.#unexpected(word.toUpperCase())
  }

  #unexpected(expected: string, { kind, from, to } = this.#next): QueryError {
    const found = kind === 'end' ? 'the end of the query' : JSON.stringify(this.#text.slice(from, to))
    return new QueryError(`expected ${expected}, found ${found} at position ${from + 1}`)
  }
}

const MISPLACED = 'a subquery is only supported in FROM and after IN'

const call = (name: string, ...args: Expression[]): Expression & { kind: 'call' } => ({ kind: 'call', name, args })
const negate = (negated: boolean, condition: Expression) => (negated ? call('not', condition) : condition)

const NAME_LENGTH_MAX = 64

function nameOf(expression: Expression, text: string): string {
  if (expression.kind === 'path') return expression.names.at(-1) ?? text
  if (expression.kind === 'quoted') return expression.value
  return expression.kind === 'attribute' ? expression.key : text.slice(0, NAME_LENGTH_MAX)
}

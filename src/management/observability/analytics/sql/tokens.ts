/** What is wrong with a query, in words for who wrote it. */
export class QueryError extends Error {
  override name = 'QueryError'
}

export const TOO_LONG = 'the query is too long'

export interface Token {
  /** `quoted`: in double quotes, which hold a name for ClickHouse and a text for BigQuery. */
  kind: 'name' | 'quoted' | 'text' | 'number' | 'sign' | 'end'
  /** A name as it is spelled, a text without its quotes and escapes. */
  value: string
  /** Where it begins and ends in the query. */
  from: number
  to: number
}

const SPACE = /(?:\s+|--[^\n]*|\/\*[\s\S]*?\*\/)+/y
const RAW_TEXT = /[rR]'([^']*)'/y
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y
const NAME_IN_BACKTICKS = /`([^`]+)`/y
const QUOTED = /"((?:[^"\\]|\\[\s\S])*)"/y
const NUMBER = /\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/y
const TEXT = /'((?:[^'\\]|''|\\[\s\S])*)'/y
const SIGN = /<=|>=|<>|!=|==|\|\||[-+*/%=<>(),.[\];]/y

const ESCAPES: Record<string, string> = { n: '\n', t: '\t', r: '\r', '\\': '\\', "'": "'", '"': '"' }
const ESCAPE = /\\([\s\S])/g
const ESCAPE_OR_QUOTE = /''|\\([\s\S])/g
const unescaped = (text: string, form: RegExp) =>
  text.replace(form, (whole, escaped?: string) => (escaped === undefined ? "'" : (ESCAPES[escaped] ?? whole)))

const FORMS: readonly [RegExp, Token['kind'], (found: RegExpExecArray) => string][] = [
  [RAW_TEXT, 'text', ([, text = '']) => text],
  [NAME, 'name', ([name]) => name],
  [NAME_IN_BACKTICKS, 'name', ([, name = '']) => name],
  [QUOTED, 'quoted', ([, text = '']) => unescaped(text, ESCAPE)],
  [NUMBER, 'number', ([number]) => number],
  [TEXT, 'text', ([, text = '']) => unescaped(text, ESCAPE_OR_QUOTE)],
  [SIGN, 'sign', ([sign]) => sign],
]

export function tokensOf(query: string): Token[] {
  const tokens: Token[] = []
  let at = after(SPACE, query, 0)
  while (at < query.length) {
    const token = tokenAt(query, at)
    tokens.push(token)
    at = after(SPACE, query, token.to)
  }
  return [...tokens, { kind: 'end', value: '', from: at, to: at }]
}

function after(form: RegExp, query: string, at: number): number {
  form.lastIndex = at
  return form.test(query) ? form.lastIndex : at
}

function tokenAt(query: string, from: number): Token {
  for (const [form, kind, read] of FORMS) {
    form.lastIndex = from
    const found = form.exec(query)
    if (found) return { kind, value: read(found), from, to: form.lastIndex }
  }
  throw new QueryError(`unexpected ${JSON.stringify(query[from])} at position ${from + 1}`)
}

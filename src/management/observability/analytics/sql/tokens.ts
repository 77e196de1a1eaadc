/** An error of a log query; the message is shown to its author. */
export class QueryError extends Error {
  override name = 'QueryError'
}

export const TOO_LONG = 'the query is too long'

export interface Token {
  /** `quoted` is in double quotes: a name in ClickHouse, a text in BigQuery. */
  kind: 'name' | 'quoted' | 'text' | 'number' | 'sign' | 'end'
  /** A name in its original spelling, or a text without quotes and escapes. */
  value: string
  /** The start in the query; `to` is the end. */
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
const decodeEscapes = (text: string, pattern: RegExp) =>
  text.replace(pattern, (whole, escaped?: string) => (escaped === undefined ? "'" : (ESCAPES[escaped] ?? whole)))

const TOKEN_PATTERNS: readonly [RegExp, Token['kind'], (found: RegExpExecArray) => string][] = [
  [RAW_TEXT, 'text', ([, text = '']) => text],
  [NAME, 'name', ([name]) => name],
  [NAME_IN_BACKTICKS, 'name', ([, name = '']) => name],
  [QUOTED, 'quoted', ([, text = '']) => decodeEscapes(text, ESCAPE)],
  [NUMBER, 'number', ([number]) => number],
  [TEXT, 'text', ([, text = '']) => decodeEscapes(text, ESCAPE_OR_QUOTE)],
  [SIGN, 'sign', ([sign]) => sign],
]

export function tokensOf(query: string): Token[] {
  const tokens: Token[] = []
  let at = endOf(SPACE, query, 0)
  while (at < query.length) {
    const token = tokenAt(query, at)
    tokens.push(token)
    at = endOf(SPACE, query, token.to)
  }
  return [...tokens, { kind: 'end', value: '', from: at, to: at }]
}

function endOf(pattern: RegExp, query: string, at: number): number {
  pattern.lastIndex = at
  return pattern.test(query) ? pattern.lastIndex : at
}

function tokenAt(query: string, from: number): Token {
  for (const [pattern, kind, read] of TOKEN_PATTERNS) {
    pattern.lastIndex = from
    const found = pattern.exec(query)
    if (found) return { kind, value: read(found), from, to: pattern.lastIndex }
  }
  throw new QueryError(`unexpected ${JSON.stringify(query[from])} at position ${from + 1}`)
}

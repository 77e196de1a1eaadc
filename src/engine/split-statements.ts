export interface SplitStatement {
  text: string
  /** Number of characters (not UTF-16 units) before `text` in the query, as Postgres counts positions. */
  characterOffset: number
}

/** Splits SQL at the semicolons that end statements; omits pieces without a token. */
export function splitStatements(query: string): SplitStatement[] {
  const statements: SplitStatement[] = []
  let start = 0
  let characterOffset = 0
  let nesting = noNesting()
  let at = 0

  function finish(end: number) {
    const text = query.slice(start, end)
    if (nesting.hasToken) statements.push({ text, characterOffset })
    characterOffset += characterCount(query.slice(start, end + 1))
    start = end + 1
    nesting = noNesting()
  }

  while (at < query.length) {
    if (query[at] === ';' && nesting.parentheses === 0 && nesting.blocks === 0) {
      finish(at)
      at += 1
      continue
    }
    const end = endOfToken(query, at)
    if (!isBlank(query, at)) addToken(nesting, query.slice(at, end))
    at = end
  }
  finish(query.length)
  return statements
}

interface Nesting {
  hasToken: boolean
  /** The first words, enough to recognize the definition of a routine. */
  opening: string
  previous: string
  parentheses: number
  /** `BEGIN ATOMIC … END` and the `CASE … END` in it. */
  blocks: number
}

const noNesting = (): Nesting => ({ hasToken: false, opening: '', previous: '', parentheses: 0, blocks: 0 })

const ROUTINE = /^CREATE (OR REPLACE )?(FUNCTION|PROCEDURE) /

/** Tracks where a semicolon does not end a statement: in the actions of a rule and in the SQL body of a routine. */
function addToken(nesting: Nesting, token: string): void {
  nesting.hasToken = true
  if (token === '(') nesting.parentheses += 1
  else if (token === ')') nesting.parentheses = Math.max(0, nesting.parentheses - 1)
  const word = token.toUpperCase()
  const { previous } = nesting
  nesting.previous = word
  if (!/^[A-Za-z]+$/.test(token)) return
  if (nesting.opening.length < 40) nesting.opening += `${word} `
  if (nesting.parentheses > 0 || !ROUTINE.test(nesting.opening)) return
  // BEGIN alone may be a name, such as that of the routine.
  if (previous === 'AS' || previous === '.') return
  const startsBody = word === 'ATOMIC' && previous === 'BEGIN'
  if (startsBody || (word === 'CASE' && nesting.blocks > 0)) nesting.blocks += 1
  // Elsewhere END is a label, which may even follow an expression without AS.
  else if (word === 'END' && (isStart(previous) || nesting.blocks > 1)) nesting.blocks = Math.max(0, nesting.blocks - 1)
}

/** Whether a statement of the body, or the END of the body, follows. */
const isStart = (previous: string) => previous === ';' || previous === 'ATOMIC'

function characterCount(text: string): number {
  let count = 0
  for (const _ of text) count += 1
  return count
}

export function isBlank(query: string, at: number): boolean {
  return /\s/.test(query.charAt(at)) || query.startsWith('--', at) || query.startsWith('/*', at)
}

export function endOfToken(query: string, at: number): number {
  if (query.startsWith('--', at)) return endOfLine(query, at)
  if (query.startsWith('/*', at)) return endOfComment(query, at)
  const character = query.charAt(at)
  if (character === "'") return endOfQuoted(query, at, false)
  if (character === '"') return endOfQuoted(query, at, false)
  if (character === '$') return endOfDollarQuoted(query, at)
  if (/[A-Za-z_\u0080-\uffff]/.test(character)) return endOfWord(query, at)
  return at + 1
}

function endOfLine(query: string, at: number): number {
  const end = query.slice(at).search(/[\r\n]/)
  return end === -1 ? query.length : at + end
}

function endOfComment(query: string, at: number): number {
  let depth = 0
  let position = at
  while (position < query.length) {
    if (query.startsWith('/*', position)) {
      depth += 1
      position += 2
    } else if (query.startsWith('*/', position)) {
      depth -= 1
      position += 2
      if (depth === 0) return position
    } else position += 1
  }
  return query.length
}

function endOfQuoted(query: string, at: number, backslashEscapes: boolean): number {
  const quote = query.charAt(at)
  let position = at + 1
  while (position < query.length) {
    const character = query.charAt(position)
    if (backslashEscapes && character === '\\') position += 2
    else if (character !== quote) position += 1
    else if (query.charAt(position + 1) === quote) position += 2
    else return position + 1
  }
  return query.length
}

const DOLLAR_TAG = /\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$/y

function endOfDollarQuoted(query: string, at: number): number {
  DOLLAR_TAG.lastIndex = at
  const tag = DOLLAR_TAG.exec(query)?.[0]
  if (tag === undefined) return at + 1
  const closing = query.indexOf(tag, at + tag.length)
  return closing === -1 ? query.length : closing + tag.length
}

/** Reads a whole word, because a `$` inside it does not quote, and an `E'…'` string, the only kind with escapes. */
function endOfWord(query: string, at: number): number {
  const word = /[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*/y
  word.lastIndex = at
  const end = at + (word.exec(query)?.[0].length ?? 1)
  const isEscapeString = end === at + 1 && /[eE]/.test(query.charAt(at)) && query.charAt(end) === "'"
  return isEscapeString ? endOfEscapeString(query, end) : end
}

/** A string continues on a later line. There, backslashes escape too, although the second quote has no `E` before it. */
function endOfEscapeString(query: string, at: number): number {
  for (let end = endOfQuoted(query, at, true); ; ) {
    let next = end
    while (next < query.length && isBlank(query, next) && !query.startsWith('/*', next)) next = endOfToken(query, next)
    if (query.charAt(next) !== "'" || !/[\r\n]/.test(query.slice(end, next))) return end
    end = endOfQuoted(query, next, true)
  }
}

export interface SplitStatement {
  text: string
  /** Number of characters (not UTF-16 units) before `text` in the query, as Postgres counts positions. */
  characterOffset: number
}

/**
 * Splits SQL at the semicolons that end statements; omits pieces without a token. Stops after a number of statements. A host does
 * nothing else meanwhile, and a query may have megabytes, so the work for each character must be small.
 */
export function splitStatements(
  query: string,
  { statementsMax = Number.POSITIVE_INFINITY }: { statementsMax?: number } = {},
): SplitStatement[] {
  const statements: SplitStatement[] = []
  let start = 0
  let characterOffset = 0
  let nesting = noNesting()
  let at = 0

  function finish(end: number) {
    if (nesting.hasToken) statements.push({ text: query.slice(start, end), characterOffset })
    characterOffset += characterCount(query, start, end + 1)
    start = end + 1
    nesting = noNesting()
  }

  while (at < query.length && statements.length < statementsMax) {
    if (query[at] === ';' && nesting.parentheses === 0 && nesting.blocks === 0) {
      finish(at)
      at += 1
      continue
    }
    const end = endOfToken(query, at)
    if (!isBlank(query, at)) addToken(nesting, query, at, end)
    at = end
  }
  if (statements.length < statementsMax) finish(query.length)
  return statements
}

interface Nesting {
  hasToken: boolean
  /** The first words, enough to recognize the definition of a routine. */
  opening: string
  isRoutine: boolean
  /** The previous token in capitals if it is a word of letters, or else its first character. */
  previous: string
  parentheses: number
  /** `BEGIN ATOMIC … END` and the `CASE … END` in it. */
  blocks: number
}

const noNesting = (): Nesting => ({
  ...{ hasToken: false, opening: '', isRoutine: false, previous: '', parentheses: 0, blocks: 0 },
})

const OPENING_LENGTH = 40
const ROUTINE = /^CREATE (OR REPLACE )?(FUNCTION|PROCEDURE) /

/** Tracks where a semicolon does not end a statement: in the actions of a rule and in the SQL body of a routine. */
function addToken(nesting: Nesting, query: string, at: number, end: number): void {
  nesting.hasToken = true
  const character = query.charAt(at)
  if (character === '(') nesting.parentheses += 1
  else if (character === ')') nesting.parentheses = Math.max(0, nesting.parentheses - 1)
  // Only a routine has blocks.
  if (!nesting.isRoutine && nesting.opening.length >= OPENING_LENGTH) return
  const { previous } = nesting
  nesting.previous = character
  if (!startsWord(query.charCodeAt(at))) return
  const token = query.slice(at, end)
  if (!/^[A-Za-z]+$/.test(token)) return
  const word = token.toUpperCase()
  nesting.previous = word
  if (nesting.opening.length < OPENING_LENGTH) {
    nesting.opening += `${word} `
    nesting.isRoutine = ROUTINE.test(nesting.opening)
  }
  if (nesting.parentheses > 0 || !nesting.isRoutine) return
  // BEGIN alone may be a name, such as that of the routine.
  if (previous === 'AS' || previous === '.') return
  const startsBody = word === 'ATOMIC' && previous === 'BEGIN'
  if (startsBody || (word === 'CASE' && nesting.blocks > 0)) nesting.blocks += 1
  // Elsewhere END is a label, which may even follow an expression without AS.
  else if (word === 'END' && (isStart(previous) || nesting.blocks > 1)) nesting.blocks = Math.max(0, nesting.blocks - 1)
}

/** Whether a statement of the body, or the END of the body, follows. */
const isStart = (previous: string) => previous === ';' || previous === 'ATOMIC'

function characterCount(text: string, from: number, end: number): number {
  let count = 0
  for (let at = from; at < end; at += (text.codePointAt(at) ?? 0) > 0xff_ff ? 2 : 1) count += 1
  return count
}

const SPACE = 0x20
const DELETE = 0x7f

export function isBlank(query: string, at: number): boolean {
  const code = query.charCodeAt(at)
  if (code === SPACE) return true
  return code > SPACE && code < DELETE ? startsComment(query, at) : /\s/.test(query.charAt(at))
}

const startsComment = (query: string, at: number) => startsLineComment(query, at) || startsBlockComment(query, at)
const startsLineComment = (query: string, at: number) => query[at] === '-' && query[at + 1] === '-'
const startsBlockComment = (query: string, at: number) => query[at] === '/' && query[at + 1] === '*'

export function endOfToken(query: string, at: number): number {
  if (startsWord(query.charCodeAt(at))) return endOfWord(query, at)
  if (startsLineComment(query, at)) return endOfLine(query, at)
  if (startsBlockComment(query, at)) return endOfComment(query, at)
  const character = query[at]
  if (character === "'" || character === '"') return endOfQuoted(query, at, false)
  if (character === '$') return endOfDollarQuoted(query, at)
  return at + 1
}

const [UPPER_A, UPPER_Z, LOWER_A, LOWER_Z, UNDERSCORE, NOT_ASCII] = [0x41, 0x5a, 0x61, 0x7a, 0x5f, 0x80] as const
const [DOLLAR, ZERO, NINE] = [0x24, 0x30, 0x39] as const

const startsWord = (code: number) =>
  (code >= LOWER_A && code <= LOWER_Z) ||
  (code >= UPPER_A && code <= UPPER_Z) ||
  code === UNDERSCORE ||
  code >= NOT_ASCII

const continuesWord = (code: number) => startsWord(code) || (code >= ZERO && code <= NINE) || code === DOLLAR

function endOfLine(query: string, at: number): number {
  let end = at
  while (end < query.length && query[end] !== '\n' && query[end] !== '\r') end += 1
  return end
}

function endOfComment(query: string, at: number): number {
  let depth = 0
  let position = at
  while (position < query.length) {
    if (startsBlockComment(query, position)) {
      depth += 1
      position += 2
    } else if (query[position] === '*' && query[position + 1] === '/') {
      depth -= 1
      position += 2
      if (depth === 0) return position
    } else position += 1
  }
  return query.length
}

function endOfQuoted(query: string, at: number, backslashEscapes: boolean): number {
  const quote = query[at]
  let position = at + 1
  while (position < query.length) {
    const character = query[position]
    if (backslashEscapes && character === '\\') position += 2
    else if (character !== quote) position += 1
    else if (query[position + 1] === quote) position += 2
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
  let end = at + 1
  while (continuesWord(query.charCodeAt(end))) end += 1
  const isEscapeString = end === at + 1 && query[end] === "'" && /[eE]/.test(query.charAt(at))
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

import { fitsNumber, NUMBER } from './template-numbers.ts'

export interface Token {
  kind:
    | 'space'
    | 'word'
    | 'field'
    | 'dot'
    | 'variable'
    | 'string'
    | 'number'
    | 'open'
    | 'close'
    | 'pipe'
    | 'assign'
    | 'comma'
  text: string
}

const HEX4 = '[0-9a-fA-F]{4}'
const NO_SURROGATE = '(?![dD][89a-fA-F])'
/** A code point escape up to 10FFFF. */
const CODE_POINT = `u${NO_SURROGATE}${HEX4}|U0000${NO_SURROGATE}${HEX4}|U000[1-9a-fA-F]${HEX4}|U0010${HEX4}`
/** An escape of a character or a byte. */
const ESCAPE = String.raw`\\(?:[abfnrtv\\]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}|${CODE_POINT})`
const NAME = String.raw`[\p{L}\p{Nd}_]`
/** The lookahead after a name; otherwise the text is not a name. */
const AFTER_NAME = String.raw`(?=[ \t\r\n.,|:()]|\}\}|$)`

const pattern = (source: string) => new RegExp(source, 'uy')

/** Token patterns; the first that matches at the position wins. */
const TOKEN_PATTERNS: readonly [Token['kind'] | 'end', RegExp][] = [
  ['end', pattern(String.raw`(?:[ \t\r\n]-)?\}\}`)],
  // Space before a closing `-` belongs to the end.
  ['space', pattern(String.raw`[ \t\r\n]+(?!-\}\})`)],
  ['string', pattern(String.raw`"(?:[^"\\\n]|\\"|${ESCAPE})*"`)],
  ['string', pattern('`[^`]*`')],
  // Go treats a character literal as a number.
  ['number', pattern(String.raw`'(?:[^'\\\n]|\\'|${ESCAPE})'`)],
  ['number', NUMBER],
  ['field', pattern(String.raw`\.(?!\d)${NAME}+${AFTER_NAME}`)],
  ['dot', pattern(String.raw`\.${AFTER_NAME}`)],
  ['variable', pattern(String.raw`\$${NAME}*${AFTER_NAME}`)],
  ['word', pattern(String.raw`(?!\d)${NAME}+${AFTER_NAME}`)],
  ['open', pattern(String.raw`\(`)],
  ['close', pattern(String.raw`\)`)],
  ['pipe', pattern(String.raw`\|`)],
  ['assign', pattern(':?=')],
  ['comma', pattern(',')],
]

interface Action {
  tokens: Token[]
  /** The position after the closing braces. */
  end: number
  problem?: string
}

/** Tokenizes the action whose opening braces end at `from`. */
export function tokensOf(text: string, from: number): Action {
  const tokens: Token[] = []
  let at = from + (/^-[ \t\r\n]/.test(text.slice(from, from + 2)) ? 1 : 0)
  while (at < text.length) {
    const found = nextAt(text, at)
    if (!found) return { tokens, end: at, problem: `unexpected ${JSON.stringify(text.slice(at, at + 10))}` }
    at += found.text.length
    if (found.kind === 'end') return { tokens, end: at }
    tokens.push({ kind: found.kind, text: found.text })
  }
  return { tokens, end: at, problem: 'an action is not closed with }}' }
}

function nextAt(text: string, at: number) {
  for (const [kind, pattern] of TOKEN_PATTERNS) {
    pattern.lastIndex = at
    const [found] = pattern.exec(text) ?? []
    if (found !== undefined && (pattern !== NUMBER || fitsNumber(found))) return { kind, text: found }
  }
  return undefined
}

const NAMED_ESCAPES: Record<string, string> = { a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }

/** Returns the value of a string token. */
export function unquote(text: string): string {
  const inner = text.slice(1, -1)
  if (text.startsWith('`')) return inner.replaceAll('\r', '')
  return inner.replace(
    /\\(?:x(..)|u(.{4})|U(.{8})|([0-7]{3})|(.))/g,
    (_, x?: string, u?: string, U?: string, octal?: string, one = '') => {
      if (octal) return String.fromCharCode(Number.parseInt(octal, 8))
      const hex = x ?? u ?? U
      return hex === undefined ? (NAMED_ESCAPES[one] ?? one) : String.fromCodePoint(Number.parseInt(hex, 16))
    },
  )
}

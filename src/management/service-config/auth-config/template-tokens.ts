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
/** By its number, of up to 10FFFF. */
const CODE_POINT = `u${NO_SURROGATE}${HEX4}|U0000${NO_SURROGATE}${HEX4}|U000[1-9a-fA-F]${HEX4}|U0010${HEX4}`
/** Of one character, or of one byte. */
const ESCAPE = String.raw`\\(?:[abfnrtv\\]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}|${CODE_POINT})`
const NAME = String.raw`[\p{L}\p{Nd}_]`
/** What has to follow a name: else it is no name, whatever it would have been. */
const BEHIND_NAME = String.raw`(?=[ \t\r\n.,|:()]|\}\}|$)`

const form = (source: string) => new RegExp(source, 'uy')

/** Each from where the last one ended; the first that fits counts. */
const FORMS: readonly [Token['kind'] | 'end', RegExp][] = [
  ['end', form(String.raw`(?:[ \t\r\n]-)?\}\}`)],
  // What a closing `-` trims belongs to it.
  ['space', form(String.raw`[ \t\r\n]+(?!-\}\})`)],
  ['string', form(String.raw`"(?:[^"\\\n]|\\"|${ESCAPE})*"`)],
  ['string', form('`[^`]*`')],
  // A character is a number.
  ['number', form(String.raw`'(?:[^'\\\n]|\\'|${ESCAPE})'`)],
  ['number', NUMBER],
  ['field', form(String.raw`\.(?!\d)${NAME}+${BEHIND_NAME}`)],
  ['dot', form(String.raw`\.${BEHIND_NAME}`)],
  ['variable', form(String.raw`\$${NAME}*${BEHIND_NAME}`)],
  ['word', form(String.raw`(?!\d)${NAME}+${BEHIND_NAME}`)],
  ['open', form(String.raw`\(`)],
  ['close', form(String.raw`\)`)],
  ['pipe', form(String.raw`\|`)],
  ['assign', form(':?=')],
  ['comma', form(',')],
]

interface Action {
  tokens: Token[]
  /** Behind the braces that close it. */
  end: number
  problem?: string
}

/** The action that begins at `from`, behind its opening braces. */
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
  for (const [kind, form] of FORMS) {
    form.lastIndex = at
    const [found] = form.exec(text) ?? []
    if (found !== undefined && (form !== NUMBER || fitsNumber(found))) return { kind, text: found }
  }
  return undefined
}

const NAMED: Record<string, string> = { a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }

/** What a token of the kind string stands for. */
export function unquoted(text: string): string {
  const inner = text.slice(1, -1)
  if (text.startsWith('`')) return inner.replaceAll('\r', '')
  return inner.replace(
    /\\(?:x(..)|u(.{4})|U(.{8})|([0-7]{3})|(.))/g,
    (_, x?: string, u?: string, U?: string, octal?: string, one = '') => {
      if (octal) return String.fromCharCode(Number.parseInt(octal, 8))
      const hex = x ?? u ?? U
      return hex === undefined ? (NAMED[one] ?? one) : String.fromCodePoint(Number.parseInt(hex, 16))
    },
  )
}

import { type Token, tokensOf } from './template-tokens.ts'

/** What Go's own templates can call. */
const FUNCTIONS = new Set(
  'and call eq ge gt html index js le len lt ne not or print printf println slice urlquery'.split(' '),
)
const CONSTANTS = new Set(['true', 'false', 'nil'])
/** Each is read inside the one around it. */
const PARENTHESES_MAX = 100
const OPENING = new Set(['if', 'with', 'range', 'block', 'define'])

class Unparsable extends Error {}
function refuse(reason: string): never {
  throw new Unparsable(reason)
}

interface Block {
  keyword: string
  /** Nothing but `end` may follow. */
  otherwise: boolean
}

interface Reading {
  blocks: Block[]
  variables: Set<string>
}

/** Why a text is not a template of Go's text/template; undefined where it is one. */
export function problemOfTemplate(text: string): string | undefined {
  const reading: Reading = { blocks: [], variables: new Set(['$']) }
  try {
    for (const action of actionsOf(text)) readAction(reading, action)
    const open = reading.blocks.at(-1)
    return open && `{{ ${open.keyword} }} has no {{ end }}`
  } catch (error) {
    if (error instanceof Unparsable) return error.message
    throw error
  }
}

/** The tokens of each action; comments are none. */
function* actionsOf(text: string): Generator<Token[]> {
  for (let start = text.indexOf('{{'); start !== -1; ) {
    const comment = /^\{\{(- )?\/\*/.exec(text.slice(start, start + 6))
    if (comment) {
      const end = text.indexOf('*/', start + comment[0].length)
      const [closing] = (end !== -1 && /^\*\/( -)?\}\}/.exec(text.slice(end, end + 6))) || []
      if (!closing) refuse('a comment does not end with */}}')
      start = text.indexOf('{{', end + closing.length)
      continue
    }
    const { tokens, end, problem } = tokensOf(text, start + 2)
    if (problem) refuse(problem)
    yield tokens
    start = text.indexOf('{{', end)
  }
}

function readAction(reading: Reading, tokens: Token[]): void {
  const { blocks, variables } = reading
  const [first, ...rest] = tokens
  const keyword = first?.kind === 'word' ? first.text : ''
  if (keyword === 'end') {
    if (blocks.length === 0) refuse('{{ end }} ends nothing')
    requireAlone(keyword, rest)
    blocks.pop()
  } else if (keyword === 'else') readElse(reading, rest)
  else if (keyword === 'break' || keyword === 'continue') {
    if (!blocks.some((block) => block.keyword === 'range')) refuse(`{{ ${keyword} }} is outside of {{ range }}`)
    requireAlone(keyword, rest)
  } else if (OPENING.has(keyword) || keyword === 'template') readOpening(reading, keyword, rest)
  else readPipeline(variables, tokens)
}

function requireAlone(keyword: string, rest: Token[]): void {
  if (rest.length > 0) refuse(`{{ ${keyword} }} stands alone`)
}

function readElse({ blocks, variables }: Reading, rest: Token[]): void {
  const open = blocks.at(-1)
  if (!open || !['if', 'with', 'range'].includes(open.keyword)) refuse('{{ else }} belongs to nothing')
  if (open.otherwise) refuse('there is more than one {{ else }}')
  const [next, ...condition] = rest
  if (next?.kind === 'word' && next.text === open.keyword && next.text !== 'range') {
    readPipeline(variables, condition)
    return
  }
  requireAlone('else', rest)
  open.otherwise = true
}

function readOpening({ blocks, variables }: Reading, keyword: string, rest: Token[]): void {
  const named = keyword === 'block' || keyword === 'define' || keyword === 'template'
  if (named && rest[0]?.kind !== 'string') refuse(`{{ ${keyword} }} has no name in quotes`)
  if (keyword === 'define' && blocks.length > 0) refuse('{{ define }} is inside of another block')
  const pipeline = named ? rest.slice(1) : rest
  if (keyword === 'define' && pipeline.length > 0) refuse('{{ define }} takes a name alone')
  const optional = keyword === 'define' || (keyword === 'template' && pipeline.length === 0)
  if (!optional) readPipeline(variables, pipeline)
  if (keyword !== 'template') blocks.push({ keyword, otherwise: false })
}

/** `$a := …`, `$a = …` and, of range, `$a, $b := …` come before the commands. */
function readPipeline(variables: Set<string>, tokens: Token[]): void {
  if (tokens.filter(({ kind }) => kind === 'open').length > PARENTHESES_MAX) refuse('there are too many parentheses')
  const sign = tokens.findIndex(({ kind }) => kind === 'assign')
  if (sign !== -1) declare(variables, tokens.slice(0, sign), tokens[sign] as Token)
  const end = readCommands(variables, tokens, sign + 1)
  if (end < tokens.length) refuse(`unexpected ${tokens[end]?.text}`)
}

function declare(variables: Set<string>, names: Token[], { text }: Token): void {
  const wellFormed =
    (names.length === 1 || (names.length === 3 && names[1]?.kind === 'comma')) &&
    names.every(({ kind }, index) => kind === (index === 1 ? 'comma' : 'variable'))
  if (!wellFormed) refuse(`unexpected ${text}`)
  for (const name of names.filter(({ kind }) => kind === 'variable')) {
    if (text === ':=') variables.add(name.text)
    else if (!variables.has(name.text)) refuse(`undefined variable ${name.text}`)
  }
}

/** Returns where it ended: at the end, or before a parenthesis that somebody else has opened. */
function readCommands(variables: Set<string>, tokens: Token[], from: number): number {
  let at = from
  for (let stage = 1; ; stage++) {
    const start = at
    while (at < tokens.length && !['pipe', 'close'].includes(tokens[at]?.kind ?? ''))
      at = readOperand(variables, tokens, at)
    const first = tokens[start]
    if (at === start || !first) refuse('an action or a command is empty')
    if (stage > 1 && isConstant(first)) refuse(`${first.text} cannot be called in a pipeline`)
    if (tokens[at]?.kind !== 'pipe') return at
    at += 1
  }
}

const isConstant = ({ kind, text }: Token) =>
  ['string', 'number', 'dot'].includes(kind) || (kind === 'word' && CONSTANTS.has(text))

function readOperand(variables: Set<string>, tokens: Token[], at: number): number {
  const { kind, text } = tokens[at] as Token
  if (kind === 'open') {
    const end = readCommands(variables, tokens, at + 1)
    if (tokens[end]?.kind !== 'close') refuse('a parenthesis is not closed')
    return end + 1
  }
  if (kind === 'word' && !FUNCTIONS.has(text) && !CONSTANTS.has(text)) refuse(`function "${text}" is not defined`)
  if (kind === 'variable' && !variables.has(text)) refuse(`undefined variable ${text}`)
  if (kind === 'comma' || kind === 'assign') refuse(`unexpected ${text}`)
  return at + 1
}

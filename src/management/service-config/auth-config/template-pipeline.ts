import type { Token } from './template-tokens.ts'

/** What Go's own templates can call. */
const FUNCTIONS = new Set(
  'and call eq ge gt html index js le len lt ne not or print printf println slice urlquery'.split(' '),
)
const CONSTANTS = new Set(['true', 'false', 'nil'])
/** Each is read inside the one around it. */
const PARENTHESES_MAX = 100

export class Unparsable extends Error {}
export function refuse(reason: string): never {
  throw new Unparsable(reason)
}

/** An action that is being read, up to its end. */
export interface Cursor {
  tokens: readonly Token[]
  at: number
}

/** Of what the pipeline stands in. */
export interface Scope {
  knows(variable: string): boolean
  declare(variable: string): void
}

interface Pipeline {
  cursor: Cursor
  scope: Scope
  /** As many variables as can be declared: two by `range` alone. */
  declarationsMax: number
}

export function skipSpace(cursor: Cursor): Token | undefined {
  while (cursor.tokens[cursor.at]?.kind === 'space') cursor.at += 1
  return cursor.tokens[cursor.at]
}

/** A pipeline that ends where the action does. */
export function readPipeline(pipeline: Pipeline): void {
  readCommands(pipeline, 0)
  const behind = pipeline.cursor.tokens[pipeline.cursor.at]
  if (behind) refuse(`unexpected ${behind.text}`)
}

/** Ends at the end of the action, or before a parenthesis that somebody else has opened. */
function readCommands(pipeline: Pipeline, depth: number): void {
  const { cursor } = pipeline
  if (depth > PARENTHESES_MAX) refuse(`there are too many parentheses: ${PARENTHESES_MAX} at most, inside each other`)
  readDeclarations(pipeline)
  for (let stage = 1; ; stage++) {
    const first = skipSpace(cursor)
    if (!first || first.kind === 'close') {
      if (stage === 1) refuse('an action or a command is empty')
      return
    }
    if (first.kind === 'pipe') refuse('an action or a command is empty')
    if (stage > 1 && isLiteral(first)) refuse(`${first.text} cannot be called in a pipeline`)
    readCommand(pipeline, depth)
  }
}

/** `$a := …`, `$a = …` and, of range, `$a, $b := …` come before the commands; else the variable is the first of them. */
function readDeclarations({ cursor, scope, declarationsMax }: Pipeline): void {
  for (let count = 1; ; count++) {
    const variable = skipSpace(cursor)
    if (variable?.kind !== 'variable') return
    const behind = { tokens: cursor.tokens, at: cursor.at + 1 }
    const sign = skipSpace(behind)
    if (sign?.kind !== 'assign' && sign?.kind !== 'comma') return
    cursor.at = behind.at + 1
    scope.declare(variable.text)
    if (sign.kind === 'assign') return
    if (count >= declarationsMax) refuse(`unexpected ${sign.text} after ${variable.text}`)
    const next = skipSpace(cursor)
    if (next?.kind !== 'variable') refuse('{{ range }} declares variables alone')
  }
}

/** Operands with space between them. */
function readCommand(pipeline: Pipeline, depth: number): void {
  const { cursor } = pipeline
  for (let next = skipSpace(cursor); next && next.kind !== 'close'; next = skipSpace(cursor)) {
    if (next.kind === 'pipe') {
      cursor.at += 1
      return
    }
    readOperand(pipeline, next, depth)
    const behind = cursor.tokens[cursor.at]
    if (behind && !['space', 'pipe', 'close'].includes(behind.kind)) refuse(`unexpected ${behind.text}`)
  }
}

const isLiteral = ({ kind, text }: Token) =>
  ['string', 'number', 'dot'].includes(kind) || (kind === 'word' && CONSTANTS.has(text))

function readOperand(pipeline: Pipeline, token: Token, depth: number): void {
  const { cursor, scope } = pipeline
  const { kind, text } = token
  cursor.at += 1
  if (kind === 'open') {
    readCommands({ ...pipeline, declarationsMax: 1 }, depth + 1)
    if (cursor.tokens[cursor.at]?.kind !== 'close') refuse('a parenthesis is not closed')
    cursor.at += 1
  }
  if (kind === 'word' && !FUNCTIONS.has(text) && !CONSTANTS.has(text)) refuse(`function "${text}" is not defined`)
  if (kind === 'variable' && !scope.knows(text)) refuse(`undefined variable ${text}`)
  if (kind === 'pipe' || kind === 'comma' || kind === 'assign') refuse(`unexpected ${text}`)
  while (cursor.tokens[cursor.at]?.kind === 'field') {
    if (isLiteral(token)) refuse(`unexpected ${cursor.tokens[cursor.at]?.text} after ${text}`)
    cursor.at += 1
  }
}

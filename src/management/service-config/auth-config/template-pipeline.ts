import type { Token } from './template-tokens.ts'

/** The predefined functions of Go templates. */
const FUNCTIONS = new Set(
  'and call eq ge gt html index js le len lt ne not or print printf println slice urlquery'.split(' '),
)
const CONSTANTS = new Set(['true', 'false', 'nil'])
/** Parsing is recursive, so the nesting is limited. */
const PARENTHESES_MAX = 100

export class TemplateSyntaxError extends Error {}
export function syntaxError(reason: string): never {
  throw new TemplateSyntaxError(reason)
}

/** A position in the tokens of an action. */
export interface Cursor {
  tokens: readonly Token[]
  at: number
}

/** The variables of the surrounding template. */
export interface Scope {
  has(variable: string): boolean
  declare(variable: string): void
}

interface Pipeline {
  cursor: Cursor
  scope: Scope
  /** The maximum number of declared variables: two for `range`, otherwise one. */
  declarationsMax: number
}

export function skipSpace(cursor: Cursor): Token | undefined {
  while (cursor.tokens[cursor.at]?.kind === 'space') cursor.at += 1
  return cursor.tokens[cursor.at]
}

/** Reads a pipeline up to the end of the action. */
export function readPipeline(pipeline: Pipeline): void {
  readCommands(pipeline, 0)
  const next = pipeline.cursor.tokens[pipeline.cursor.at]
  if (next) syntaxError(`unexpected ${next.text}`)
}

/** Reads commands up to the end of the action or before an unmatched closing parenthesis. */
function readCommands(pipeline: Pipeline, depth: number): void {
  const { cursor } = pipeline
  if (depth > PARENTHESES_MAX)
    syntaxError(`parentheses are nested too deeply: at most ${PARENTHESES_MAX} levels are allowed`)
  readDeclarations(pipeline)
  for (let stage = 1; ; stage++) {
    const first = skipSpace(cursor)
    if (!first || first.kind === 'close') {
      if (stage === 1) syntaxError('an action or a command is empty')
      return
    }
    if (first.kind === 'pipe') syntaxError('an action or a command is empty')
    if (stage > 1 && isLiteral(first)) syntaxError(`${first.text} cannot be called in a pipeline`)
    readCommand(pipeline, depth)
  }
}

/** Reads `$a := …`, `$a = …` or, for range, `$a, $b := …` before the commands. Any other variable is the first operand. */
function readDeclarations({ cursor, scope, declarationsMax }: Pipeline): void {
  for (let count = 1; ; count++) {
    const variable = skipSpace(cursor)
    if (variable?.kind !== 'variable') return
    const lookahead = { tokens: cursor.tokens, at: cursor.at + 1 }
    const sign = skipSpace(lookahead)
    if (sign?.kind !== 'assign' && sign?.kind !== 'comma') return
    cursor.at = lookahead.at + 1
    scope.declare(variable.text)
    if (sign.kind === 'assign') return
    if (count >= declarationsMax) syntaxError(`unexpected ${sign.text} after ${variable.text}`)
    const next = skipSpace(cursor)
    if (next?.kind !== 'variable') syntaxError('{{ range }} can only declare variables')
  }
}

/** Reads operands separated by spaces. */
function readCommand(pipeline: Pipeline, depth: number): void {
  const { cursor } = pipeline
  for (let next = skipSpace(cursor); next && next.kind !== 'close'; next = skipSpace(cursor)) {
    if (next.kind === 'pipe') {
      cursor.at += 1
      return
    }
    readOperand(pipeline, next, depth)
    const following = cursor.tokens[cursor.at]
    if (following && !['space', 'pipe', 'close'].includes(following.kind)) syntaxError(`unexpected ${following.text}`)
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
    if (cursor.tokens[cursor.at]?.kind !== 'close') syntaxError('a parenthesis is not closed')
    cursor.at += 1
  }
  if (kind === 'word' && !FUNCTIONS.has(text) && !CONSTANTS.has(text)) syntaxError(`function "${text}" is not defined`)
  if (kind === 'variable' && !scope.has(text)) syntaxError(`undefined variable ${text}`)
  if (kind === 'pipe' || kind === 'comma' || kind === 'assign') syntaxError(`unexpected ${text}`)
  while (cursor.tokens[cursor.at]?.kind === 'field') {
    if (isLiteral(token)) syntaxError(`unexpected ${cursor.tokens[cursor.at]?.text} after ${text}`)
    cursor.at += 1
  }
}

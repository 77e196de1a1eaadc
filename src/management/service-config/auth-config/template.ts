import {
  type Cursor,
  readPipeline,
  type Scope,
  skipSpace,
  syntaxError,
  TemplateSyntaxError,
} from './template-pipeline.ts'
import { tokensOf, unquote } from './template-tokens.ts'

/** A block that ends with {{ end }}, and the variables declared in it. */
interface Block {
  keyword: 'if' | 'with' | 'range'
  variables: string[]
  /** True after {{ else }}. */
  hasElse: boolean
}

/** The text itself or a template defined in it. Each has its own variables and loops. */
interface Template {
  keyword: 'define' | 'block' | ''
  name: string
  blocks: Block[]
  variables: Set<string>
  /** True if it contains only white space. */
  isEmpty: boolean
}

interface ParserState {
  /** Nested templates, innermost last. */
  templates: [Template, ...Template[]]
  /** Whether a template of each name has a non-empty definition; only one is allowed. */
  defined: Map<string, boolean>
}

const newTemplate = (keyword: Template['keyword'], name: string): Template => ({
  keyword,
  name,
  blocks: [],
  variables: new Set(['$']),
  isEmpty: true,
})

/**
 * Returns the syntax error that Go's text/template (1.23) would report for a text, or undefined. Unlike Go, it limits the
 * nesting of parentheses.
 */
export function findTemplateError(text: string): string | undefined {
  const state: ParserState = { templates: [newTemplate('', '')], defined: new Map() }
  try {
    for (const part of partsOf(text)) {
      if (typeof part !== 'string') readAction(state, { tokens: part, at: 0 })
      else if (/\P{White_Space}/u.test(part)) innermost(state).isEmpty = false
    }
    const { blocks, keyword } = innermost(state)
    const open = blocks.at(-1)?.keyword ?? keyword
    if (open) syntaxError(`{{ ${open} }} has no {{ end }}`)
    define(state, state.templates[0])
  } catch (error) {
    if (error instanceof TemplateSyntaxError) return error.message
    throw error
  }
}

/** Yields the texts and the tokens of each action between them; comments are skipped. */
function* partsOf(text: string): Generator<string | Cursor['tokens']> {
  let position = 0
  for (let start = text.indexOf('{{'); start !== -1; start = text.indexOf('{{', position)) {
    yield text.slice(position, start)
    const comment = /^\{\{(-[ \t\r\n])?\/\*/.exec(text.slice(start, start + 6))
    if (comment) position = endOfComment(text, start + comment[0].length)
    else {
      const { tokens, end, problem } = tokensOf(text, start + 2)
      if (problem) syntaxError(problem)
      yield tokens
      position = end
    }
  }
  yield text.slice(position)
}

function endOfComment(text: string, from: number): number {
  const end = text.indexOf('*/', from)
  const [closing] = (end !== -1 && /^\*\/([ \t\r\n]-)?\}\}/.exec(text.slice(end, end + 6))) || []
  if (!closing) syntaxError('a comment does not end with */}}')
  return end + closing.length
}

const innermost = ({ templates }: ParserState): Template => templates.at(-1) ?? templates[0]

function readAction(state: ParserState, cursor: Cursor): void {
  const template = innermost(state)
  const first = skipSpace(cursor)
  const keyword = first?.kind === 'word' ? first.text : ''
  if (keyword === 'define' && template.keyword === '' && template.blocks.length === 0) {
    cursor.at += 1
    state.templates.push(newTemplate(keyword, readName(keyword, cursor)))
    requireEnd(keyword, cursor)
    return
  }
  if (keyword === 'end' || keyword === 'else') {
    cursor.at += 1
    if (keyword === 'end') readEnd(state, cursor)
    else readElse(template, cursor)
    return
  }
  template.isEmpty = false
  readContent(state, keyword, cursor)
}

/** Reads an action that adds content to the current template. */
function readContent(state: ParserState, keyword: string, cursor: Cursor): void {
  const template = innermost(state)
  if (keyword === 'define') syntaxError('{{ define }} cannot be inside another block')
  if (isOneOf(keyword, ['if', 'with', 'range', 'break', 'continue', 'template', 'block'])) cursor.at += 1
  if (keyword === 'break' || keyword === 'continue') {
    const isInside = template.blocks.some((block) => block.keyword === 'range' && !block.hasElse)
    if (!isInside) syntaxError(`{{ ${keyword} }} must be inside {{ range }}`)
    requireEnd(keyword, cursor)
  } else if (isOneOf(keyword, ['if', 'with', 'range'])) {
    template.blocks.push({ keyword, variables: [], hasElse: false })
    readCondition(template, keyword, cursor)
  } else if (keyword === 'template' || keyword === 'block') {
    const name = readName(keyword, cursor)
    if (keyword === 'block' || skipSpace(cursor)) readCondition(template, keyword, cursor)
    if (keyword === 'block') state.templates.push(newTemplate(keyword, name))
  } else readCondition(template, keyword, cursor)
}

const isOneOf = <const K extends string>(keyword: string, keywords: readonly K[]): keyword is K =>
  keywords.some((one) => one === keyword)

function readCondition(template: Template, keyword: string, cursor: Cursor): void {
  readPipeline({ cursor, scope: scopeOf(template), declarationsMax: keyword === 'range' ? 2 : 1 })
}

function scopeOf({ variables, blocks }: Template): Scope {
  return {
    has: (variable) => variables.has(variable),
    declare: (variable) => {
      // A variable of an outer block stays when this block ends.
      if (variables.has(variable)) return
      variables.add(variable)
      blocks.at(-1)?.variables.push(variable)
    },
  }
}

function readName(keyword: string, cursor: Cursor): string {
  const name = skipSpace(cursor)
  if (name?.kind !== 'string') syntaxError(`{{ ${keyword} }} must have a quoted name`)
  cursor.at += 1
  return unquote(name.text)
}

function requireEnd(keyword: string, cursor: Cursor): void {
  if (skipSpace(cursor)) syntaxError(`{{ ${keyword} }} takes no arguments here`)
}

function readEnd(state: ParserState, cursor: Cursor): void {
  const { templates } = state
  const template = innermost(state)
  const block = template.blocks.pop()
  if (!block && templates.length === 1) syntaxError('{{ end }} has no block to end')
  requireEnd('end', cursor)
  if (block) for (const variable of block.variables) template.variables.delete(variable)
  else {
    templates.pop()
    define(state, template)
  }
}

function define({ defined }: ParserState, { name, isEmpty }: Template): void {
  if (defined.get(name) && !isEmpty) syntaxError(`${name ? `template "${name}"` : 'the text itself'} is defined twice`)
  if (!defined.get(name)) defined.set(name, !isEmpty)
}

function readElse(template: Template, cursor: Cursor): void {
  const open = template.blocks.at(-1)
  if (!open) syntaxError('{{ else }} has no block')
  if (open.hasElse) syntaxError('a block can have only one {{ else }}')
  const next = skipSpace(cursor)
  if (next?.kind === 'word' && next.text === open.keyword && next.text !== 'range') {
    cursor.at += 1
    readCondition(template, open.keyword, cursor)
    return
  }
  requireEnd('else', cursor)
  open.hasElse = true
}

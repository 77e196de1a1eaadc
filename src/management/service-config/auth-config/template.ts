import { type Cursor, readPipeline, refuse, type Scope, skipSpace, Unparsable } from './template-pipeline.ts'
import { tokensOf, unquoted } from './template-tokens.ts'

/** What ends with {{ end }}, and declares variables until then. */
interface Block {
  keyword: 'if' | 'with' | 'range'
  variables: string[]
  /** Nothing but `end` may follow. */
  otherwise: boolean
}

/** The text itself, and each template that is defined in it: no other's variables and loops are seen there. */
interface Template {
  keyword: 'define' | 'block' | ''
  name: string
  blocks: Block[]
  variables: Set<string>
  /** Of nothing but white space. */
  isEmpty: boolean
}

interface Reading {
  /** The innermost is the last. */
  templates: [Template, ...Template[]]
  /** By name, whether one of them holds anything: that one is the only one. */
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
 * Why Go's text/template (1.23) would not parse a text, which has no name and no functions of its own; undefined where
 * it would. Parentheses nest less deep here.
 */
export function problemOfTemplate(text: string): string | undefined {
  const reading: Reading = { templates: [newTemplate('', '')], defined: new Map() }
  try {
    for (const part of partsOf(text)) {
      if (typeof part !== 'string') readAction(reading, { tokens: part, at: 0 })
      else if (/\P{White_Space}/u.test(part)) innermost(reading).isEmpty = false
    }
    const { blocks, keyword } = innermost(reading)
    const open = blocks.at(-1)?.keyword ?? keyword
    if (open) refuse(`{{ ${open} }} has no {{ end }}`)
    define(reading, reading.templates[0])
  } catch (error) {
    if (error instanceof Unparsable) return error.message
    throw error
  }
}

/** The texts, and the tokens of each action between them; comments are neither. */
function* partsOf(text: string): Generator<string | Cursor['tokens']> {
  let behind = 0
  for (let start = text.indexOf('{{'); start !== -1; start = text.indexOf('{{', behind)) {
    yield text.slice(behind, start)
    const comment = /^\{\{(-[ \t\r\n])?\/\*/.exec(text.slice(start, start + 6))
    if (comment) behind = endOfComment(text, start + comment[0].length)
    else {
      const { tokens, end, problem } = tokensOf(text, start + 2)
      if (problem) refuse(problem)
      yield tokens
      behind = end
    }
  }
  yield text.slice(behind)
}

function endOfComment(text: string, from: number): number {
  const end = text.indexOf('*/', from)
  const [closing] = (end !== -1 && /^\*\/([ \t\r\n]-)?\}\}/.exec(text.slice(end, end + 6))) || []
  if (!closing) refuse('a comment does not end with */}}')
  return end + closing.length
}

const innermost = ({ templates }: Reading): Template => templates.at(-1) ?? templates[0]

function readAction(reading: Reading, cursor: Cursor): void {
  const template = innermost(reading)
  const first = skipSpace(cursor)
  const keyword = first?.kind === 'word' ? first.text : ''
  if (keyword === 'define' && template.keyword === '' && template.blocks.length === 0) {
    cursor.at += 1
    reading.templates.push(newTemplate(keyword, readName(keyword, cursor)))
    requireEnd(keyword, cursor)
    return
  }
  if (keyword === 'end' || keyword === 'else') {
    cursor.at += 1
    if (keyword === 'end') readEnd(reading, cursor)
    else readElse(template, cursor)
    return
  }
  template.isEmpty = false
  readContent(reading, keyword, cursor)
}

/** What puts something into the template that it stands in. */
function readContent(reading: Reading, keyword: string, cursor: Cursor): void {
  const template = innermost(reading)
  if (keyword === 'define') refuse('{{ define }} is inside of another block')
  if (isOneOf(keyword, ['if', 'with', 'range', 'break', 'continue', 'template', 'block'])) cursor.at += 1
  if (keyword === 'break' || keyword === 'continue') {
    const isInside = template.blocks.some((block) => block.keyword === 'range' && !block.otherwise)
    if (!isInside) refuse(`{{ ${keyword} }} is outside of {{ range }}`)
    requireEnd(keyword, cursor)
  } else if (isOneOf(keyword, ['if', 'with', 'range'])) {
    template.blocks.push({ keyword, variables: [], otherwise: false })
    readCondition(template, keyword, cursor)
  } else if (keyword === 'template' || keyword === 'block') {
    const name = readName(keyword, cursor)
    if (keyword === 'block' || skipSpace(cursor)) readCondition(template, keyword, cursor)
    if (keyword === 'block') reading.templates.push(newTemplate(keyword, name))
  } else readCondition(template, keyword, cursor)
}

const isOneOf = <const K extends string>(keyword: string, keywords: readonly K[]): keyword is K =>
  keywords.some((one) => one === keyword)

function readCondition(template: Template, keyword: string, cursor: Cursor): void {
  readPipeline({ cursor, scope: scopeOf(template), declarationsMax: keyword === 'range' ? 2 : 1 })
}

function scopeOf({ variables, blocks }: Template): Scope {
  return {
    knows: (variable) => variables.has(variable),
    declare: (variable) => {
      // One that is known already outlives the block.
      if (variables.has(variable)) return
      variables.add(variable)
      blocks.at(-1)?.variables.push(variable)
    },
  }
}

function readName(keyword: string, cursor: Cursor): string {
  const name = skipSpace(cursor)
  if (name?.kind !== 'string') refuse(`{{ ${keyword} }} has no name in quotes`)
  cursor.at += 1
  return unquoted(name.text)
}

function requireEnd(keyword: string, cursor: Cursor): void {
  if (skipSpace(cursor)) refuse(`{{ ${keyword} }} stands alone`)
}

function readEnd(reading: Reading, cursor: Cursor): void {
  const { templates } = reading
  const template = innermost(reading)
  const block = template.blocks.pop()
  if (!block && templates.length === 1) refuse('{{ end }} ends nothing')
  requireEnd('end', cursor)
  if (block) for (const variable of block.variables) template.variables.delete(variable)
  else {
    templates.pop()
    define(reading, template)
  }
}

function define({ defined }: Reading, { name, isEmpty }: Template): void {
  if (defined.get(name) && !isEmpty) refuse(`${name ? `template "${name}"` : 'the text itself'} is defined twice`)
  if (!defined.get(name)) defined.set(name, !isEmpty)
}

function readElse(template: Template, cursor: Cursor): void {
  const open = template.blocks.at(-1)
  if (!open) refuse('{{ else }} belongs to nothing')
  if (open.otherwise) refuse('there is more than one {{ else }}')
  const next = skipSpace(cursor)
  if (next?.kind === 'word' && next.text === open.keyword && next.text !== 'range') {
    cursor.at += 1
    readCondition(template, open.keyword, cursor)
    return
  }
  requireEnd('else', cursor)
  open.otherwise = true
}

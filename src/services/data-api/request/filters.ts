import { Scanner } from './scanner.ts'
import { type Field, fieldIn } from './select.ts'

/** Operators with one value. Those in the first list also accept `any` and `all`. */
const QUANTIFIABLE = ['eq', 'gte', 'gt', 'lte', 'lt', 'like', 'ilike', 'match', 'imatch'] as const
const SIMPLE = ['neq', 'cs', 'cd', 'ov', 'sl', 'sr', 'nxr', 'nxl', 'adj'] as const
const TEXT_SEARCH = ['fts', 'plfts', 'phfts', 'wfts'] as const
const IS_VALUES = ['null', 'not_null', 'true', 'false', 'unknown'] as const

export type Operation =
  | { kind: 'compare'; operator: (typeof QUANTIFIABLE)[number]; quantifier?: 'any' | 'all' | undefined; value: string }
  | { kind: 'simple'; operator: (typeof SIMPLE)[number]; value: string }
  | { kind: 'search'; operator: (typeof TEXT_SEARCH)[number]; language?: string | undefined; value: string }
  | { kind: 'in'; values: readonly string[] }
  | { kind: 'is'; value: (typeof IS_VALUES)[number] }
  | { kind: 'isdistinct'; value: string }

export interface Filter {
  kind: 'filter'
  field: Field
  negated: boolean
  operation: Operation
}

export interface LogicGroup {
  kind: 'group'
  operator: 'and' | 'or'
  negated: boolean
  parts: readonly Logic[]
}

export type Logic = Filter | LogicGroup

/** A filter, order or window of the embedded resource that the path names. The path is empty for the requested table. */
export interface Located<Value> {
  path: readonly string[]
  value: Value
}

export function parseFilter(key: string, text: string): Located<Filter> {
  const scanner = new Scanner(text, 'filter')
  const { path, field } = treePath(key)
  const { negated, operation } = operationIn(scanner, (values) => values.text.slice(values.at))
  return { path, value: { kind: 'filter', field, negated, operation } }
}

/** The dotted path of embedded resources before the last name, which is a column or a parameter such as `order`. */
export function treePath(key: string): { path: string[]; field: Field } {
  const scanner = new Scanner(key, 'tree path')
  const path: string[] = []
  for (;;) {
    const field = fieldIn(scanner)
    if (scanner.isAtEnd) return { path, field }
    if (field.path.length > 0) scanner.fail('end of input')
    scanner.expect('.')
    path.push(field.name)
  }
}

type ReadValue = (scanner: Scanner) => string

function operationIn(scanner: Scanner, readValue: ReadValue): Pick<Filter, 'negated' | 'operation'> {
  const negated = scanner.take('not.')
  return { negated, operation: plainOperationIn(scanner, readValue) }
}

function plainOperationIn(scanner: Scanner, readValue: ReadValue): Operation {
  const start = scanner.at
  if (scanner.take('in.')) return { kind: 'in', values: listIn(scanner) }
  if (scanner.take('is.')) return { kind: 'is', value: isOperandIn(scanner, readValue) }
  if (scanner.take('isdistinct.')) return { kind: 'isdistinct', value: readValue(scanner) }
  const name = scanner.takeWhile((character) => character !== '.' && character !== '(')
  const search = TEXT_SEARCH.find((one) => one === name)
  if (search) {
    const language = scanner.take('(') ? languageIn(scanner) : undefined
    scanner.expect('.')
    return { kind: 'search', operator: search, language, value: readValue(scanner) }
  }
  const compare = QUANTIFIABLE.find((one) => one === name)
  if (compare) {
    const quantifier = scanner.take('(any)') ? 'any' : scanner.take('(all)') ? 'all' : undefined
    if (scanner.take('.')) return { kind: 'compare', operator: compare, quantifier, value: readValue(scanner) }
  }
  const simple = SIMPLE.find((one) => one === name)
  if (simple && scanner.take('.')) return { kind: 'simple', operator: simple, value: readValue(scanner) }
  scanner.at = start
  if (!scanner.text.includes('.', start)) scanner.fail('"not" or operator (eq, gt, ...)')
  const unknown = scanner.takeWhile((character) => character !== '.')
  scanner.at = start
  scanner.failWith(
    /^(not|in|is|isdistinct)$/.test(unknown)
      ? `unexpected "${scanner.peek()}" expecting operator (eq, gt, ...)`
      : `unexpected "${scanner.peek()}" expecting "not" or operator (eq, gt, ...)`,
  )
}

function languageIn(scanner: Scanner): string {
  const language = scanner.takeName()
  scanner.expect(')')
  return language
}

/** The operand of `is`. */
function isOperandIn(scanner: Scanner, readValue: ReadValue): (typeof IS_VALUES)[number] {
  const { at } = scanner
  const text = readValue(scanner).toLowerCase()
  const value = IS_VALUES.find((one) => one === text)
  if (value) return value
  scanner.at = at
  scanner.fail('isVal: (null, not_null, true, false, unknown)')
}

function listIn(scanner: Scanner): string[] {
  scanner.skipBlanks()
  scanner.expect('(')
  scanner.skipBlanks()
  const values: string[] = []
  do values.push(listElement(scanner))
  while (scanner.take(','))
  scanner.expect(')')
  scanner.skipBlanks()
  return values
}

/** A quoted text, or the text up to the next comma or parenthesis. */
function listElement(scanner: Scanner): string {
  const quoted = scanner.peek() === '"' ? scanner.attempt(() => quotedElement(scanner)) : undefined
  return quoted ?? scanner.takeWhile((character) => character !== ',' && character !== ')')
}

function quotedElement(scanner: Scanner): string {
  const value = scanner.takeQuoted()
  if (!scanner.isAtEnd && !scanner.startsWith(',') && !scanner.startsWith(')')) scanner.fail('","')
  return value
}

/** In a logic tree, an array literal may contain commas. */
function logicValue(scanner: Scanner): string {
  const array = /^\{[^{}]*\}/.exec(scanner.text.slice(scanner.at))?.[0]
  if (array === undefined) return listElement(scanner)
  scanner.at += array.length
  return array
}

/** Parses `and=(…)` or `or=(…)`. The key may have a path and a negation, such as `embedded.not.or`. */
export function parseLogic(key: string, text: string): Located<LogicGroup> {
  const { path, field } = treePath(key)
  const operator = field.name === 'or' ? 'or' : 'and'
  const negated = path.at(-1) === 'not'
  if (negated) path.pop()
  const scanner = new Scanner(text, 'logic tree')
  const parts = groupIn(scanner, 0)
  return { path, value: { kind: 'group', operator, negated, parts } }
}

const LOGIC_DEPTH_MAX = 50

function groupIn(scanner: Scanner, depth: number): Logic[] {
  if (depth > LOGIC_DEPTH_MAX) scanner.failWith(`at most ${LOGIC_DEPTH_MAX} nested groups`)
  scanner.skipBlanks()
  scanner.expect('(')
  const parts = scanner.takeList(() => logicIn(scanner, depth))
  scanner.expect(')')
  scanner.skipBlanks()
  return parts
}

const GROUP = /^(not\.)?(and|or)[ \t]*\(/

function logicIn(scanner: Scanner, depth: number): Logic {
  const [start, not, operator] = GROUP.exec(scanner.text.slice(scanner.at)) ?? []
  if (start !== undefined) {
    scanner.at += start.length - 1
    const parts = groupIn(scanner, depth + 1)
    return { kind: 'group', operator: operator === 'or' ? 'or' : 'and', negated: not !== undefined, parts }
  }
  const field = fieldIn(scanner)
  scanner.expect('.')
  return { kind: 'filter', field, ...operationIn(scanner, logicValue) }
}

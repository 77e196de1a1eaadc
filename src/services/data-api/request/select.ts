import { Scanner } from './scanner.ts'

/** A step into a JSON value: `->key`, `->>0`. */
interface JsonStep {
  asText: boolean
  key: string | number
}

export interface Field {
  name: string
  path: readonly JsonStep[]
}

const AGGREGATES = ['avg', 'count', 'max', 'min', 'sum'] as const
type Aggregate = (typeof AGGREGATES)[number]

export interface SelectedField {
  kind: 'field'
  field: Field
  alias?: string | undefined
  cast?: string | undefined
  aggregate?: { name: Aggregate; cast?: string | undefined } | undefined
}

export interface SelectedRelation {
  kind: 'relation'
  name: string
  alias?: string | undefined
  hint?: string | undefined
  join?: 'left' | 'inner' | undefined
  isSpread: boolean
  items: readonly SelectItem[]
}

export type SelectItem = SelectedField | SelectedRelation

/** Bound of the nesting, because each level is a subquery. */
const DEPTH_MAX = 20

export function parseSelect(text: string): SelectItem[] {
  const scanner = new Scanner(text, 'select parameter')
  return scanner.takeRestAsList(() => selectItem(scanner, 0))
}

/** `count()`, the number of rows. It looks like an embedded resource of that name. */
const COUNT = /^(?:[^,():]+:)?count\(\)/

function selectItem(scanner: Scanner, depth: number): SelectItem {
  if (scanner.take('...')) return { ...relationHead(scanner), isSpread: true, items: nestedItems(scanner, depth) }
  if (scanner.take('*')) return { kind: 'field', field: { name: '*', path: [] } }
  if (COUNT.test(scanner.text.slice(scanner.at))) return selectedField(scanner)
  const head = scanner.attempt(() => relationHead(scanner))
  if (head) return { ...head, items: nestedItems(scanner, depth) }
  return selectedField(scanner)
}

function relationHead(scanner: Scanner): Omit<SelectedRelation, 'items'> {
  const alias = takeAlias(scanner)
  const name = scanner.takeName()
  const params: string[] = []
  while (params.length < 2 && scanner.take('!')) params.push(scanner.takeName())
  scanner.expect('(')
  const join = params.find((param) => param === 'inner' || param === 'left')
  const hint = params.find((param) => param !== join)
  return { kind: 'relation', name, alias, hint, join, isSpread: false }
}

function nestedItems(scanner: Scanner, depth: number): SelectItem[] {
  scanner.skipBlanks()
  const isEmpty = scanner.peek() === ')'
  if (!isEmpty && depth >= DEPTH_MAX) scanner.failWith(`at most ${DEPTH_MAX} levels of embedding`)
  const items = isEmpty ? [] : scanner.takeList(() => selectItem(scanner, depth + 1))
  scanner.expect(')')
  scanner.skipBlanks()
  return items
}

function takeAlias(scanner: Scanner): string | undefined {
  return scanner.attempt(() => {
    const alias = scanner.takeName()
    if (scanner.startsWith('::') || !scanner.take(':')) scanner.fail('":"')
    return alias
  })
}

function selectedField(scanner: Scanner): SelectedField {
  const alias = takeAlias(scanner)
  if (scanner.take('count()')) {
    return {
      kind: 'field',
      field: { name: '*', path: [] },
      alias,
      aggregate: { name: 'count', cast: takeCast(scanner) },
    }
  }
  const field = fieldIn(scanner)
  const cast = takeCast(scanner)
  const aggregate = takeAggregate(scanner)
  scanner.skipBlanks()
  if (!scanner.isAtEnd && !scanner.startsWith(',') && !scanner.startsWith(')')) {
    scanner.fail('"...", letter, digit, "-", "->>", "->", "::", ".", ")", "," or end of input')
  }
  return { kind: 'field', field, alias, cast, aggregate }
}

function takeAggregate(scanner: Scanner): SelectedField['aggregate'] {
  const name = AGGREGATES.find((one) => scanner.startsWith(`.${one}()`))
  if (!name) return undefined
  scanner.take(`.${name}()`)
  return { name, cast: takeCast(scanner) }
}

/** A type name without quotes, such as `double precision`. */
function takeCast(scanner: Scanner): string | undefined {
  if (!scanner.take('::')) return undefined
  const type = scanner.takeWhile((character) => /[A-Za-z0-9_ ]/.test(character)).trim()
  if (type === '') scanner.fail('letter or digit')
  return type
}

/** A name with the steps of a JSON path. */
export function fieldIn(scanner: Scanner): Field {
  scanner.skipBlanks()
  const name = scanner.takeName()
  const path: JsonStep[] = []
  for (;;) {
    const asText = scanner.take('->>')
    if (!asText && !scanner.take('->')) break
    path.push({ asText, key: jsonKey(scanner) })
  }
  scanner.skipBlanks()
  return { name, path }
}

const INDEX = /^-?\d{1,9}(?=->|::|[.,)]|$)/

function jsonKey(scanner: Scanner): string | number {
  const [index] = INDEX.exec(scanner.text.slice(scanner.at)) ?? []
  if (index === undefined && scanner.startsWith('-')) {
    scanner.at += 1
    scanner.fail('digit')
  }
  if (index === undefined) return scanner.peek() === '"' ? scanner.takeQuoted() : plainKey(scanner)
  scanner.at += index.length
  return Number(index)
}

/** Any text without the characters that end a key; a dash ends it only as part of an arrow. */
function plainKey(scanner: Scanner): string {
  const [key = ''] = /^(?:[^.,>():-]|-(?!>))+/.exec(scanner.text.slice(scanner.at)) ?? []
  if (key === '') scanner.fail('"-", digit or any non reserved character different from: .,>()')
  scanner.at += key.length
  return key.trim()
}

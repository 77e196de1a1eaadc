import { type Located, treePath } from './filters.ts'
import { Scanner } from './scanner.ts'
import { type Field, fieldIn } from './select.ts'

export interface OrderTerm {
  /** The embedded resource that has the column; absent for the table itself. */
  relation?: string | undefined
  field: Field
  direction?: 'asc' | 'desc' | undefined
  nulls?: 'first' | 'last' | undefined
}

/** `key` may have the path of an embedded resource before `order`. */
export function parseOrder(key: string, text: string): Located<OrderTerm[]> {
  const scanner = new Scanner(text, 'order')
  return { path: treePath(key).path, value: scanner.takeRestAsList(() => termIn(scanner)) }
}

function termIn(scanner: Scanner): OrderTerm {
  const first = fieldIn(scanner)
  const isRelated = first.path.length === 0 && scanner.take('(')
  const field = isRelated ? fieldIn(scanner) : first
  if (isRelated) scanner.expect(')')
  const direction = scanner.take('.asc') ? 'asc' : scanner.take('.desc') ? 'desc' : undefined
  const nulls = scanner.take('.nullsfirst') ? 'first' : scanner.take('.nullslast') ? 'last' : undefined
  if (scanner.take('.')) {
    const expected = '"nullsfirst" or "nullslast"'
    scanner.fail(direction ? expected : `"asc", "desc", ${expected}`)
  }
  if (!scanner.isAtEnd && scanner.peek() !== ',') scanner.fail('delimiter (.), "," or end of input')
  return { ...(isRelated && { relation: first.name }), field, direction, nulls }
}

/** Names separated by commas: `columns=`, `on_conflict=`. */
export function parseColumns(parameter: 'columns' | 'on_conflict', text: string): string[] {
  const scanner = new Scanner(text, `${parameter} parameter`)
  return scanner.takeRestAsList(() => scanner.takeName())
}

import type { Bound } from './bind.ts'

/** Gives equal expressions equal numbers. Each is looked into once: it is asked about at every level of what it stands in. */
export function createNumbering(): (expression: Bound) => number {
  const numbers = new Map<string, number>()
  const known = new WeakMap<Bound, number>()

  function numberOf(expression: Bound): number {
    const before = known.get(expression)
    if (before !== undefined) return before
    const parts =
      expression.kind === 'call' ? [expression.name, expression.distinct, ...expression.args.map(numberOf)] : expression
    const text = JSON.stringify(parts)
    const number = numbers.get(text) ?? numbers.size
    numbers.set(text, number)
    known.set(expression, number)
    return number
  }
  return numberOf
}

import type { Bound } from './bind.ts'

/** Assigns equal numbers to equal expressions. Numbers are cached, because every enclosing expression looks them up. */
export function createNumbering(): (expression: Bound) => number {
  const numbers = new Map<string, number>()
  const cache = new WeakMap<Bound, number>()

  function numberOf(expression: Bound): number {
    const cached = cache.get(expression)
    if (cached !== undefined) return cached
    const parts =
      expression.kind === 'call' ? [expression.name, expression.distinct, ...expression.args.map(numberOf)] : expression
    const text = JSON.stringify(parts)
    const number = numbers.get(text) ?? numbers.size
    numbers.set(text, number)
    cache.set(expression, number)
    return number
  }
  return numberOf
}

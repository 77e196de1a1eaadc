import type { Bound } from './bind.ts'

/** Returns the sources whose rows can match a condition; undefined for all. Other sources are not read. */
export function sourcesInCondition(condition: Bound): string[] | undefined {
  if (condition.kind !== 'call') return undefined
  const { name, args } = condition
  if (name === 'and' || name === 'or') {
    const [one, other] = args.map(sourcesInCondition)
    if (name === 'or') return one && other && [...one, ...other]
    return one && other ? one.filter((source) => other.includes(source)) : (one ?? other)
  }
  const [column, ...values] = args
  if ((name !== '=' && name !== 'in') || column?.kind !== 'column' || column.name !== 'source') return undefined
  const texts = values.flatMap((value) => (value.kind === 'text' ? [value.value] : []))
  return texts.length === values.length ? texts : undefined
}

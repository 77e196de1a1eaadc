import type { Argument, Catalogue, Routine } from './catalogue.ts'
import type { Details } from './catalogue-details.ts'
import { byName, compareTexts } from './order.ts'

export const TEXT_OR_JSON = ['json', 'jsonb', 'text']

export const inputsOf = ({ arguments: all }: Routine): Argument[] => all.filter(({ mode }) => /[ibv]/.test(mode))

/** A function that can be called over HTTP. */
export interface Callable {
  name: string
  comment: string | null
  isVolatile: boolean
  inputs: (Argument & { format: string })[]
  /** True if the only argument has no name: the whole body is its value. */
  takesBody: boolean
}

/** Returns one function per name, because a path describes one: the first overload. */
export function callablesOf({ functions, types }: Catalogue, { functions: found }: Details): Callable[] {
  const details = new Map(found.map((one) => [one.id, one]))
  const names = new Map(types.map(({ id, name }) => [id, name]))
  const all = functions
    .toSorted((a, b) => byName(a, b) || compareTexts(a.signature, b.signature))
    .flatMap((routine) => {
      const own = details.get(routine.id)
      if (!own?.usable) return []
      const formats = new Map(routine.arguments.map((argument, place) => [argument, own.formats[place] ?? '']))
      const inputs = inputsOf(routine).map((argument) => ({ ...argument, format: formats.get(argument) ?? '' }))
      const [first, ...others] = inputs
      const takesBody = first?.name === '' && others.length === 0 && TEXT_OR_JSON.includes(names.get(first.type) ?? '')
      if (!takesBody && inputs.some(({ name }) => name === '')) return []
      const { comment, isVolatile } = own
      return [{ name: routine.name, comment, isVolatile, inputs, takesBody }]
    })
  return Array.from(Map.groupBy(all, ({ name }) => name).values(), ([first]) => first).filter(
    (one) => one !== undefined,
  )
}

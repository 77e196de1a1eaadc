const WIDTH = 80

/** A type as the members of its union, so that it can be put into lists and broken over lines. */
export type Union = readonly string[]

const inline = (union: Union): string => union.join(' | ')

const collator = new Intl.Collator('en')
export const byName = (a: { name: string }, b: { name: string }): number => collator.compare(a.name, b.name)
export const compareTexts = (a: string, b: string): number => collator.compare(a, b)

/** In the quotes that need fewer backslashes, double ones where that is the same. */
export function quote(text: string): string {
  const quoted = JSON.stringify(text)
  const count = (mark: string) => text.split(mark).length
  if (count('"') <= count("'")) return quoted
  return `'${quoted.slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`
}

/** A name as the key of a type: quoted where it must be. */
export const key = (name: string): string => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : quote(name))

export const indent = (lines: readonly string[]): string[] => lines.map((line) => `  ${line}`)

/** `{ … }` over several lines. */
export const object = (lines: readonly string[]): string[] => (lines.length > 0 ? ['{', ...indent(lines), '}'] : ['{}'])

/** The same for what is named by its keys: without members it has none. */
export const members = (lines: readonly string[]): string[] =>
  object(lines.length > 0 ? lines : ['[_ in never]: never'])

/** `name: { … }`, whose first line joins the name. */
export const property = (name: string, [first = '', ...rest]: readonly string[]): string[] => [
  `${name}: ${first}`,
  ...rest,
]

/** `name: A | B`, one member a line where it is too long; `depth` is how far the line will be indented. */
export function union(name: string, type: Union, depth: number): string[] {
  const line = `${name}: ${inline(type)}`
  if (depth + line.length <= WIDTH || type.length === 1) return [line]
  return [`${name}:`, ...type.map((member) => `  | ${member}`)]
}

/** `name: [a, b]` with the marks of the lists of values, not types. */
export function list(name: string, values: readonly string[], depth: number): string[] {
  const line = `${name}: [${values.join(', ')}]`
  if (depth + line.length <= WIDTH) return [line]
  return [`${name}: [`, ...indent(values.map((value) => `${value},`)), ']']
}

/** `{ a: A; b: B }` on one line where it fits. */
export function fields(name: string, entries: readonly (readonly [string, Union])[], depth: number): string[] {
  const line = `${name}: { ${entries.map(([field, type]) => `${field}: ${inline(type)}`).join('; ')} }`
  if (depth + line.length <= WIDTH) return [line]
  return property(name, object(entries.flatMap(([field, type]) => union(field, type, depth + 2))))
}

/** `{ a: A; b: B }` where each is on one line and all fit into one. */
export function compact(prefix: string, lines: readonly string[], depth: number): string[] {
  const line = `${prefix}{ ${lines.join('; ')} }`
  const fits = depth + line.length <= WIDTH && lines.every((one) => !one.startsWith(' '))
  const [first = '', ...rest] = object(lines)
  return fits ? [line] : [`${prefix}${first}`, ...rest]
}

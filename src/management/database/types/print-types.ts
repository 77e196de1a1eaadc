const WIDTH = 80

/** The members of a union type, so that it can be put into lists and broken over lines. */
export type Union = readonly string[]

const inline = (union: Union): string => union.join(' | ')

/** Uses the quotes that need fewer backslashes, and double quotes if both need the same. */
export function quote(text: string): string {
  const quoted = JSON.stringify(text)
  const count = (mark: string) => text.split(mark).length
  if (count('"') <= count("'")) return quoted
  return `'${quoted.slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`
}

/** Formats a name as a key and quotes it if necessary. */
export const key = (name: string): string => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : quote(name))

export const indent = (lines: readonly string[]): string[] => lines.map((line) => `  ${line}`)

/** Formats `{ … }` over several lines. */
export const object = (lines: readonly string[]): string[] => (lines.length > 0 ? ['{', ...indent(lines), '}'] : ['{}'])

/** Formats an object type; an empty one allows no keys. */
export const members = (lines: readonly string[]): string[] =>
  object(lines.length > 0 ? lines : ['[_ in never]: never'])

/** Formats `name: { … }` with the name on the first line. */
export const property = (name: string, [first = '', ...rest]: readonly string[]): string[] => [
  `${name}: ${first}`,
  ...rest,
]

/** Formats `name: A | B`, with one member per line if it is too long. `depth` is the indentation of the line. */
export function union(name: string, type: Union, depth: number): string[] {
  const line = `${name}: ${inline(type)}`
  if (depth + line.length <= WIDTH || type.length === 1) return [line]
  return [`${name}:`, ...type.map((member) => `  | ${member}`)]
}

/** Formats `name: [a, b]` with the punctuation of a list of values. */
export function list(name: string, values: readonly string[], depth: number): string[] {
  const line = `${name}: [${values.join(', ')}]`
  if (depth + line.length <= WIDTH) return [line]
  return [`${name}: [`, ...indent(values.map((value) => `${value},`)), ']']
}

/** Formats `{ a: A; b: B }` on one line if it fits. */
export function fields(name: string, entries: readonly (readonly [string, Union])[], depth: number): string[] {
  const line = `${name}: { ${entries.map(([field, type]) => `${field}: ${inline(type)}`).join('; ')} }`
  if (depth + line.length <= WIDTH) return [line]
  return property(name, object(entries.flatMap(([field, type]) => union(field, type, depth + 2))))
}

/** Joins single-line entries to `{ a: A; b: B }` if they fit on one line. */
export function compact(prefix: string, lines: readonly string[], depth: number): string[] {
  const line = `${prefix}{ ${lines.join('; ')} }`
  const fits = depth + line.length <= WIDTH && lines.every((one) => !one.startsWith(' '))
  const [first = '', ...rest] = object(lines)
  return fits ? [line] : [`${prefix}${first}`, ...rest]
}

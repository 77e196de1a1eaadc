/** What the runtimes have and the types do not know yet. */
interface SourceJson {
  parse(text: string, revive: (name: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(source: string): unknown
}
const json = JSON as unknown as SourceJson

/** How many digits a number has when nothing is left out, as Postgres writes it. */
export const digitsOf = (source: string): number => source.length + Math.abs(Number(/e(.*)/i.exec(source)?.[1] ?? 0))

/** For `JSON.stringify`, which writes numbers again as they were written here: Postgres keeps more of them than a double holds. */
export const parseExact = (
  text: string,
  revive = (_name: string, value: unknown, _source?: string) => value,
): unknown =>
  json.parse(text, (name, value, { source }) => {
    const revived = revive(name, value, source)
    return typeof value === 'number' && source !== undefined && String(value) !== source
      ? json.rawJSON(source)
      : revived
  })

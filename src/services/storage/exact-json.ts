/** JSON functions that the runtimes have and TypeScript's types lack. */
interface SourceJson {
  parse(text: string, revive: (name: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(source: string): unknown
}
const json = JSON as unknown as SourceJson

/** The length of a number when Postgres writes it without an exponent. */
export const digitsOf = (source: string): number => source.length + Math.abs(Number(/e(.*)/i.exec(source)?.[1] ?? 0))

/** Parses JSON so that `JSON.stringify` writes each number as it was: Postgres stores more digits than a double holds. */
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

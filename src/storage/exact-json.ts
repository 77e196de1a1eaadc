/** What the runtimes have and the types do not know yet. */
interface SourceJson {
  parse(text: string, revive: (name: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(source: string): unknown
}
const json = JSON as unknown as SourceJson

/** For `JSON.stringify`, which writes numbers again as they were written here: Postgres keeps more of them than a double holds. */
export const parseExact = (text: string, revive = (_name: string, value: unknown) => value): unknown =>
  json.parse(text, (name, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source
      ? json.rawJSON(source)
      : revive(name, value),
  )

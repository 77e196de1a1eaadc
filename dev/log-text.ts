/** Fields that are not shown at a terminal. */
const OMITTED = new Set(['at', 'level', 'event'])

/** Formats a log line for people: the time, the level in capitals unless it is `info`, the event and its fields. */
export function readableLine(line: string): string {
  const entry = parseEntry(line)
  if (!entry) return `${timeOf(new Date())}  ${quoted(line)}`
  const { at, level, event } = entry
  const facts = event === 'request' ? requestFacts(entry) : factsOf(entry, OMITTED)
  const label = level === 'info' ? String(event) : `${String(level).toUpperCase()} ${event}`
  return [timeOf(new Date(String(at))), label, ...facts].join('  ')
}

/** Parses a log line; undefined for text in another format. */
export function parseEntry(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined
  try {
    const entry = JSON.parse(line)
    return typeof entry.event === 'string' && typeof entry.at === 'string' ? entry : undefined
  } catch {
    return undefined
  }
}

function requestFacts(entry: Record<string, unknown>): string[] {
  const { method, path, status, ms } = entry
  const took = ms === undefined ? '' : ` ${ms} ms`
  return [
    `${method} ${quoted(String(path))} ${status}${took}`,
    ...factsOf(entry, new Set([...OMITTED, 'method', 'path', 'status', 'ms', 'request_id'])),
  ]
}

const factsOf = (entry: Record<string, unknown>, omitted: ReadonlySet<string>): string[] =>
  Object.entries(entry).flatMap(([name, value]) =>
    omitted.has(name) || (name === 'request_id' && entry.level === 'info') ? [] : [`${name}=${valueText(value)}`],
  )

const valueText = (value: unknown): string => (typeof value === 'string' ? quoted(value) : JSON.stringify(value))

// biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal would obey them
const UNSAFE = /[\s"\u0000-\u001f\u007f-\u009f]/
const AFTER_ASCII_CONTROLS = /[\u007f-\u009f]/g

/** Quotes text as in JSON if it contains characters that could end the line or control the terminal. */
function quoted(text: string): string {
  if (text !== '' && !UNSAFE.test(text)) return text
  return JSON.stringify(text).replace(AFTER_ASCII_CONTROLS, (c) => `\\u00${c.charCodeAt(0).toString(16)}`)
}

/** The time in the zone of this machine. */
function timeOf(at: Date): string {
  const two = (n: number) => String(n).padStart(2, '0')
  const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join('-')
  const time = [two(at.getHours()), two(at.getMinutes()), two(at.getSeconds())].join(':')
  return `${day} ${time}.${String(at.getMilliseconds()).padStart(3, '0')}`
}

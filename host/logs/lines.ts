import { LOG_FIELDS } from '../settings/configuration.ts'

/** A log message of a server. Fields without a value, such as the user of a background process, are empty. */
export type LogLine = Record<keyof typeof LOG_FIELDS | 'error_severity' | 'message', string>

const NAMES = Object.keys(LOG_FIELDS) as (keyof typeof LOG_FIELDS)[]
const MESSAGE_LENGTH_MAX = 8_192
/** Matches the start of a message, after a line feed alone: Postgres indents further lines by a tab, and does so after no other sign. */
const MESSAGE_START = /(?<![^\n])\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC\t\d+\t/g
const YEAR_1 = Date.parse('0001-01-01T00:00:00Z')
/** Whether Postgres reads the text as a time, too; the 30th of February would be another day. */
function isTime(text: string): boolean {
  const at = Date.parse(text)
  return at >= YEAR_1 && new Date(at).toISOString() === text
}
const SEVERITY = /^([A-Z0-9]+): {2}/

/**
 * Parses complete messages, which take `length` bytes. The last message counts as incomplete unless the bytes reach the end of
 * the log. Output without a prefix belongs to the message before it.
 */
export function parseLines(
  bytes: Buffer,
  { linesMax, isEnd }: { linesMax: number; isEnd: boolean },
): { lines: LogLine[]; length: number } {
  // Latin-1 has one character for each byte, so indexes in the text are positions in the log.
  const starts = [...bytes.toString('latin1').matchAll(MESSAGE_START)].map(({ index }) => index)
  const lastStart = starts.at(-1) || bytes.length
  const complete = isEnd ? bytes.lastIndexOf('\n') + 1 : lastStart
  const whole = starts.filter((start) => start < complete)
  const length = whole[linesMax] ?? complete
  const lines = whole
    .slice(0, linesMax)
    .map((start, n) => parseLine(bytes.toString('utf8', start, whole[n + 1] ?? length)))
    // A name with a line feed, of a role or a database, can look like the start of a message.
    .filter(({ timestamp }) => isTime(timestamp))
  return { lines, length }
}

function parseLine(line: string): LogLine {
  const text = line.replaceAll('\0', '')
  const parts = text.split('\t', NAMES.length)
  const fields = Object.fromEntries(NAMES.map((name, n) => [name, parts[n] ?? '']))
  const rest = text.slice(parts.join('\t').length + 1).trimEnd()
  const [prefix = '', severity = 'LOG'] = SEVERITY.exec(rest) ?? []
  const whole = rest.slice(prefix.length).replaceAll('\n\t', '\n')
  const message = whole.slice(0, MESSAGE_LENGTH_MAX).toWellFormed()
  const timestamp = `${fields.timestamp?.replace(' ', 'T').replace(' UTC', '')}Z`
  return { ...fields, timestamp, error_severity: severity, message } as LogLine
}

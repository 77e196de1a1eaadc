import type { LogFields } from '../src/platform/http/log.ts'
import { type LogLevel, logLine } from '../src/platform/http/log.ts'
import { parseEntry, readableLine } from './log-text.ts'

export const LOG_FORMATS = ['json', 'text'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]

export interface LogOutput {
  /** Writes a line of another program; a line in another format becomes the message of an entry. */
  onLine(line: string): void
  event(level: LogLevel, event: string, fields?: LogFields): void
  /** Writes buffered lines at once, before the process ends. */
  flush(): void
}

/** Opens the log of an installation on standard output. */
export function openLogOutput(format: LogFormat, write = writeBuffered): LogOutput {
  const asJson = (line: string) => (isEntry(line) ? line : logLine('warn', 'message', { message: line }))
  const onLine = (line: string) => write(format === 'json' ? asJson(line) : readableLine(line))
  return { onLine, event: (...entry) => onLine(logLine(...entry)), flush }
}

/** Recognizes the usual entry without parsing it, because each request writes one. */
const isEntry = (line: string): boolean => line.startsWith('{"at":"') || parseEntry(line) !== undefined

const lines: string[] = []

/** Buffers lines and writes those of one event-loop turn together: under load, each write would cost as much as a query. */
function writeBuffered(line: string): void {
  if (lines.push(line) > 1) return
  setImmediate(flush)
}

function flush(): void {
  if (lines.length > 0) process.stdout.write(`${lines.splice(0).join('\n')}\n`)
}

import type { LogFields } from '../src/platform/http/log.ts'
import { type LogLevel, logLine } from '../src/platform/http/log.ts'
import { parsed, readableLine } from './log-text.ts'

export const LOG_FORMATS = ['json', 'text'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]

export interface LogOutput {
  /** Takes a line that another program has logged; what is not one of ours becomes the message of one. */
  onLine(line: string): void
  event(level: LogLevel, event: string, fields?: LogFields): void
  /** Writes at once what waits: the process is about to end. */
  flush(): void
}

/** The log of an installation on standard output. */
export function openLogOutput(format: LogFormat, write = writeSoon): LogOutput {
  const asJson = (line: string) => (isEntry(line) ? line : logLine('warn', 'message', { message: line }))
  const onLine = (line: string) => write(format === 'json' ? asJson(line) : readableLine(line))
  return { onLine, event: (...entry) => onLine(logLine(...entry)), flush }
}

/** Each request writes a line, so that the usual one is recognized without being parsed. */
const isEntry = (line: string): boolean => line.startsWith('{"at":"') || parsed(line) !== undefined

const lines: string[] = []

/** One write for all lines of a turn: under load each write of its own would cost as much as a query. */
function writeSoon(line: string): void {
  if (lines.push(line) > 1) return
  setImmediate(flush)
}

function flush(): void {
  if (lines.length > 0) process.stdout.write(`${lines.splice(0).join('\n')}\n`)
}

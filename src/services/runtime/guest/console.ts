import { formatWithOptions, inspect } from 'node:util'
import { current, type Invocation } from './invocation.ts'

/** What becomes of a line is the host's matter: nothing is printed here, where it would stand among the host's own log. */
export interface Line {
  level: string
  message: string
  at: string
}

const MESSAGE_LENGTH_MAX = 10_000
const LINES_MAX = 100
const FLUSH_MS = 100

/** Printed while no request was at hand; goes with the next one. */
const early: Line[] = []

function note(level: string, message: string): void {
  const line = { level, message: message.slice(0, MESSAGE_LENGTH_MAX), at: new Date().toISOString() }
  const invocation = current()
  if (!invocation) {
    if (early.length < LINES_MAX) early.push(line)
    return
  }
  if (invocation.printed >= LINES_MAX) return
  invocation.printed += 1
  invocation.lines.push(line)
  if (invocation.lines.length === 1) flushSoon(invocation)
}

/** What comes within a moment goes in one message. */
function flushSoon(invocation: Invocation): void {
  try {
    invocation.waitUntil(new Promise<void>((resolve) => setTimeout(resolve, FLUSH_MS)).then(() => flush(invocation)))
  } catch {
    // Its request is over: the next one takes them along.
    early.push(...invocation.lines.splice(0))
  }
}

export async function flush({ id, lines, write }: Invocation): Promise<void> {
  if (lines.length > 0) await write(id, lines.splice(0)).catch(() => {})
}

export function takeEarlyLines(invocation: Invocation): void {
  if (early.length === 0) return
  invocation.lines.push(...early.splice(0))
  flushSoon(invocation)
}

const text = (values: unknown[]): string => formatWithOptions({ colors: false }, ...values)

function installCounters(): void {
  const counts = new Map<string, number>()
  const begun = new Map<string, number>()
  const tell = (label: string, ...values: unknown[]) => {
    const since = begun.get(label)
    if (since === undefined) return note('warn', `Timer '${label}' does not exist`)
    note('log', text([`${label}: ${Date.now() - since}ms`, ...values]))
  }
  console.count = (label = 'default') => {
    counts.set(label, (counts.get(label) ?? 0) + 1)
    note('log', `${label}: ${counts.get(label)}`)
  }
  console.countReset = (label = 'default') => void counts.delete(label)
  console.time = (label = 'default') => void begun.set(label, Date.now())
  console.timeLog = (label = 'default', ...values: unknown[]) => tell(label, ...values)
  console.timeEnd = (label = 'default') => {
    tell(label)
    begun.delete(label)
  }
}

export function installConsole(): void {
  for (const level of ['log', 'info', 'warn', 'error', 'debug'] as const) {
    console[level] = (...values: unknown[]) => note(level, text(values))
  }
  console.group = console.log
  console.groupCollapsed = console.log
  console.dirxml = console.log
  installCounters()
  console.table = console.log
  console.dir = (value: unknown) => note('log', inspect(value))
  console.trace = (...values: unknown[]) => note('log', `Trace: ${text(values)}`)
  console.assert = (holds?: unknown, ...values: unknown[]) => {
    if (!holds) note('error', `Assertion failed${values.length > 0 ? `: ${text(values)}` : ''}`)
  }
  addEventListener('unhandledrejection', ({ reason }) => note('error', `Unhandled rejection: ${text([reason])}`))
}

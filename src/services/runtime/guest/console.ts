import { formatWithOptions, inspect } from 'node:util'
import { currentInvocation, type Invocation, type Line } from './invocation.ts'

const MESSAGE_LENGTH_MAX = 10_000
const LINES_MAX = 100
const FLUSH_MS = 100

/** Lines printed outside of a request; sent with the next one. */
const early: Line[] = []

function recordLine(level: string, message: string, linesMax = LINES_MAX): void {
  const line = { level, message: message.slice(0, MESSAGE_LENGTH_MAX), at: new Date().toISOString() }
  const invocation = currentInvocation()
  if (!invocation) {
    if (early.length < linesMax) early.push(line)
    return
  }
  if (invocation.printed >= linesMax) return
  invocation.printed += 1
  invocation.lines.push(line)
  if (invocation.lines.length === 1) flushSoon(invocation)
}

/**
 * Records an error that the program did not catch, as one line more than the program may print. The host puts it in the place of the
 * last line.
 */
export const recordFailure = (...values: unknown[]): void => recordLine('error', text(values), LINES_MAX + 1)

/** Sends the lines of a short interval in one message. */
function flushSoon(invocation: Invocation): void {
  try {
    invocation.waitUntil(new Promise<void>((resolve) => setTimeout(resolve, FLUSH_MS)).then(() => flush(invocation)))
  } catch {
    // The request is over: send the lines with the next one.
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
  const startedAt = new Map<string, number>()
  const logTimer = (label: string, ...values: unknown[]) => {
    const since = startedAt.get(label)
    if (since === undefined) return recordLine('warn', `Timer '${label}' does not exist`)
    recordLine('log', text([`${label}: ${Date.now() - since}ms`, ...values]))
  }
  console.count = (label = 'default') => {
    counts.set(label, (counts.get(label) ?? 0) + 1)
    recordLine('log', `${label}: ${counts.get(label)}`)
  }
  console.countReset = (label = 'default') => void counts.delete(label)
  console.time = (label = 'default') => void startedAt.set(label, Date.now())
  console.timeLog = (label = 'default', ...values: unknown[]) => logTimer(label, ...values)
  console.timeEnd = (label = 'default') => {
    logTimer(label)
    startedAt.delete(label)
  }
}

export function installConsole(): void {
  for (const level of ['log', 'info', 'warn', 'error', 'debug'] as const) {
    console[level] = (...values: unknown[]) => recordLine(level, text(values))
  }
  console.group = console.log
  console.groupCollapsed = console.log
  console.dirxml = console.log
  installCounters()
  console.table = console.log
  console.dir = (value: unknown) => recordLine('log', inspect(value))
  console.trace = (...values: unknown[]) => recordLine('log', `Trace: ${text(values)}`)
  console.assert = (holds?: unknown, ...values: unknown[]) => {
    if (!holds) recordLine('error', `Assertion failed${values.length > 0 ? `: ${text(values)}` : ''}`)
  }
  addEventListener('unhandledrejection', (event) => {
    let isPrevented = false
    // The runtime's event cannot be canceled. This listener is the first, so it decides after those of the program.
    Object.defineProperty(event, 'preventDefault', {
      value() {
        isPrevented = true
      },
    })
    queueMicrotask(() => {
      if (!isPrevented && !isEndOfOwnSocket(event.reason)) recordFailure('Unhandled rejection:', event.reason)
    })
  })
}

/**
 * Whether the error is that of a read that was pending when the program closed its own socket. The runtime uses its message for
 * nothing else.
 */
const isEndOfOwnSocket = (reason: unknown): boolean =>
  reason instanceof TypeError && reason.message === 'This socket has been closed.'

/** Fields of a log line. `at` is the time of the line itself. */
export type LogFields = { [name: string]: unknown; at?: never }
/** Fields of a request's log line. */
export type RequestFacts = LogFields & { queries?: number }
export interface Logger {
  info(event: string, fields?: LogFields): void
  error(event: string, fields?: LogFields): void
}

/** Of paths that hold a secret, all but that. */
export const loggedPath = (path: string): string => path.replace(/(\/project-claim\/)[^/]+/i, '$1…')

export type LogLevel = 'info' | 'warn' | 'error'

/** The one form of a log line, of the Worker and of every program beside it. */
export const logLine = (level: LogLevel, event: string, fields: LogFields = {}): string =>
  JSON.stringify({ at: new Date(), level, event, ...fields })

/** One JSON line per event. Callers pass facts, never headers, bodies, tokens or SQL. */
export function createLogger(requestId: string): Logger {
  const line = (level: LogLevel, event: string, fields: LogFields = {}) =>
    logLine(level, event, { request_id: requestId, ...fields })
  return {
    info: (event, fields) => console.log(line('info', event, fields)),
    error: (event, fields) => console.error(line('error', event, fields)),
  }
}

/**
 * A failure for the operator: its text and that of its causes. It goes to the log and never to a client,
 * and still without the parameters of a failed query, which are data.
 */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, TEXT_LENGTH_MAX)
  const cause = error.cause === undefined ? '' : ` <- ${describeError(error.cause)}`
  const text = (error.stack ?? error.message).replace(/\nparams: [\s\S]*?(?=\n {4}at |$)/, '')
  return `${text.slice(0, TEXT_LENGTH_MAX)}${cause}`
}

/** Of each cause: what a database raises may be megabytes. */
const TEXT_LENGTH_MAX = 8_000

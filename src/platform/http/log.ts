/** Fields of a log line. `at` is the time of the line itself. */
export type LogFields = { [name: string]: unknown; at?: never }
/** Fields of a request's log line. */
export type RequestFacts = LogFields & { queries?: number }
export interface Logger {
  info(event: string, fields?: LogFields): void
  error(event: string, fields?: LogFields): void
}

/** The path for the log, without the secret that some paths contain. */
export const loggedPath = (path: string): string => path.replace(/(\/project-claim\/)[^/]+/i, '$1…')

export type LogLevel = 'info' | 'warn' | 'error'

/** Formats a log line, for the Worker and for all other processes. */
export const logLine = (level: LogLevel, event: string, fields: LogFields = {}): string =>
  JSON.stringify({ at: new Date(), level, event, ...fields })

/** Creates a logger that writes one JSON line per event. Never pass headers, bodies, tokens or SQL. */
export function createLogger(requestId: string): Logger {
  const line = (level: LogLevel, event: string, fields: LogFields = {}) =>
    logLine(level, event, { request_id: requestId, ...fields })
  return {
    info: (event, fields) => console.log(line('info', event, fields)),
    error: (event, fields) => console.error(line('error', event, fields)),
  }
}

/**
 * Describes an error and its causes for the log. Never send this to a client. The parameters of a failed query are removed, as they
 * are user data.
 */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, TEXT_LENGTH_MAX)
  const cause = error.cause === undefined ? '' : ` <- ${describeError(error.cause)}`
  const { name, message, stack = '' } = error
  const [withoutParameters = ''] = message.split('\nparams: ', 1)
  // The end of the parameters cannot be found in the stack alone: one of them may look like a frame.
  const text = stack.includes(message)
    ? stack.replace(message, () => withoutParameters)
    : `${name}: ${withoutParameters}`
  return `${text.slice(0, TEXT_LENGTH_MAX)}${cause}`
}

/** Limit for each cause: a database error may be megabytes long. */
const TEXT_LENGTH_MAX = 8_000

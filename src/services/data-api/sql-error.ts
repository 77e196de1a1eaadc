import { EngineUnavailable, SqlError, StatementsTooLarge } from '../../engine/engine-errors.ts'
import { isUnavailable } from '../../platform/db/postgres-errors.ts'
import { bodyTooLarge, DataApiError, requestError } from './data-api-error.ts'
import { failurePrefix } from './sql/result-sql.ts'

/** Statuses of Postgres's errors: by code, else by class. All others are the caller's fault: 400. */
const BY_CODE: Readonly<Record<string, number>> = {
  ...{ '23503': 409, '23505': 409, '25006': 405, '53400': 500, '57P01': 503, P0001: 400, '42883': 404, '42P01': 404 },
  ...{ '42P17': 500 },
}
const BY_CLASS: Readonly<Record<string, number>> = {
  ...{ '08': 503, '09': 500, '0L': 403, '0P': 403, '25': 500, '28': 403, '2D': 500, '38': 500, '39': 500, '3B': 500 },
  ...{ '40': 500, '53': 503, '54': 500, '55': 500, '57': 500, '58': 500, F0: 500, HV: 500, P0: 500, XX: 500 },
}

/** An error of Postgres as the Data API reports it. A missing permission is 401 for anonymous callers, 403 for others. */
export function dataApiErrorOf(error: unknown, { isAnonymous }: { isAnonymous: boolean }): unknown {
  if (error instanceof StatementsTooLarge)
    return bodyTooLarge('the database takes: 16 MiB with its values as JSON texts')
  if (error instanceof EngineUnavailable) return projectUnavailable(error)
  // Failed sessions with a project's database throw the errors above and below, so this one was with the control database.
  if (!(error instanceof SqlError)) return isUnavailable(error) ? unavailable(CONTROL_UNAVAILABLE, error) : error
  const { code, message, detail = null, hint = null } = error
  const check = failedCheck(error)
  if (check) return check
  if (code === 'PGRST') return raisedError(error)
  const status = statusOf(error, isAnonymous)
  const headers: Record<string, string> = status === 401 ? { 'www-authenticate': 'Bearer' } : {}
  return new DataApiError({ status, code, message, details: detail, hint, headers }, error)
}

const CONTROL_UNAVAILABLE = { code: 'PGRST000', message: 'The control plane is busy: try again shortly' }
const PROJECT_UNAVAILABLE = { code: 'PGRST000', message: 'Database connection error. Retrying the connection.' }
const PROJECT_BUSY = { code: 'PGRST003', message: 'Timed out acquiring connection from connection pool.' }
const TOO_MANY_CONNECTIONS = '53300'

const unavailable = (reason: { code: string; message: string }, cause: unknown): DataApiError =>
  new DataApiError({ ...reason, status: 503, headers: { 'retry-after': '1' } }, cause)

const projectUnavailable = (error: EngineUnavailable): DataApiError =>
  unavailable(error.code === TOO_MANY_CONNECTIONS ? PROJECT_BUSY : PROJECT_UNAVAILABLE, error)

function statusOf({ code, message }: SqlError, isAnonymous: boolean): number {
  if (code === '42501') return isAnonymous ? 401 : 403
  if (code === '21000') return message.endsWith('requires a WHERE clause') ? 400 : 500
  if (code === '22023' && /^role .* does not exist$/s.test(message)) return 401
  if (code.startsWith('PT')) return isStatus(Number(code.slice(2))) ? Number(code.slice(2)) : 500
  return BY_CODE[code] ?? BY_CLASS[code.slice(0, 2)] ?? 400
}

const isStatus = (status: number): boolean => Number.isInteger(status) && status >= 200 && status <= 599

/** A check of the request that failed in its transaction. */
function failedCheck({ code, message }: SqlError): DataApiError | undefined {
  if (code !== '22P02') return undefined
  const [, check, detail = ''] = new RegExp(`"${failurePrefix()}(\\w+):(\\w*)"`).exec(message) ?? []
  if (check === 'rows') return requestError('PGRST116', { details: `The result contains ${detail} rows` })
  if (check === 'affected') return requestError('PGRST124', { details: `The query affects ${detail} rows` })
  return check === 'url' ? requestError('PGRST115') : undefined
}

/** Whether the schema has changed since the statement was compiled. */
export const isSchemaChanged = (error: unknown): boolean =>
  error instanceof SqlError && error.code === '22P02' && error.message.includes(`"${failurePrefix()}schema:`)

/** Whether the project's database lacks the login, or the table of schema changes, that requests need. */
export const isUnprepared = (error: unknown): boolean =>
  (error instanceof EngineUnavailable && /^28/.test(error.code ?? '')) ||
  (error instanceof SqlError &&
    /^(3F000|42P01|42501)$/.test(error.code) &&
    /\bpgbouncer\b|schema_changes/.test(error.message))

const MESSAGE_HINT =
  "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' and optional keys: 'details', 'hint'."
const DETAIL_HINT =
  "DETAIL must be a JSON object with obligatory keys: 'status', 'headers' and optional key: 'status_text'."

/** The error of `RAISE SQLSTATE 'PGRST'`: its message is the body, its detail has the status and the headers. */
function raisedError({ message, detail }: SqlError): DataApiError {
  const body = objectIn(message)
  if (!body || typeof body.code !== 'string' || typeof body.message !== 'string') {
    return requestError('PGRST121', { details: `Invalid JSON value for MESSAGE: '${message}'`, hint: MESSAGE_HINT })
  }
  const response = detail === undefined ? undefined : objectIn(detail)
  if (!response || typeof response.status !== 'number' || !isStatus(response.status) || !isHeaders(response.headers)) {
    const details =
      detail === undefined ? 'DETAIL is missing in the RAISE statement' : `Invalid JSON value for DETAIL: '${detail}'`
    return requestError('PGRST121', { details, hint: DETAIL_HINT })
  }
  return new DataApiError({
    ...{ status: response.status, code: body.code, message: body.message, headers: response.headers },
    details: body.details ?? null,
    hint: typeof body.hint === 'string' ? body.hint : null,
    statusText: isStatusText(response.status_text) ? response.status_text : '',
  })
}

function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined
  } catch {
    return undefined
  }
}

/** Other characters cannot be in a status line. */
const isStatusText = (value: unknown): value is string => typeof value === 'string' && /^[\x20-\x7e]*$/.test(value)

const isHeaders = (value: unknown): value is Record<string, string> =>
  typeof value === 'object' && value !== null && Object.values(value).every((header) => typeof header === 'string')

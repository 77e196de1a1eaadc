/** Returns the name of the unique constraint that a statement violated; undefined for any other error. */
export function uniqueViolation(error: unknown): string | undefined {
  const known = postgresFailure(error)
  return known?.code === '23505' ? known.constraint : undefined
}

/** Whether Postgres aborted the transaction because of a concurrent one (serialization failure or deadlock), so it can be retried. */
export function isConflict(error: unknown): boolean {
  const code = postgresFailure(error)?.code
  return code === '40001' || code === '40P01'
}

/** SQLSTATE classes of lost sessions and of exhausted connections, memory or disk. */
const UNAVAILABLE = /^(08|57P|53)/
/** Messages of the drivers about lost sessions, which have no SQLSTATE. */
const LOST = /^(Connection terminated|Client (has encountered|was closed))/

/** Whether the database was unavailable, so the same request may succeed later. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error && typeof error.code === 'string') return UNAVAILABLE.test(error.code)
  // Without an SQLSTATE, Postgres has sent no response.
  if (error.name === 'NeonDbError' || LOST.test(error.message)) return true
  return isUnavailable(error.cause) || (isQuery(error) && isNetworkLost(error.cause))
}

const isQuery = ({ message }: Error) => message.startsWith('Failed query')
/** A message of the runtime. It counts only as the cause of a failed query, as any fetch may fail with it. */
const isNetworkLost = (error: unknown) => error instanceof Error && error.message.startsWith('Network connection lost')

/** Whether Postgres canceled the statement because it exceeded the statement timeout. */
export const isCanceled = (error: unknown): boolean => postgresFailure(error)?.code === '57014'

/** Whether the statement waited for a lock longer than allowed. */
export const isLockTimeout = (error: unknown): boolean => postgresFailure(error)?.code === '55P03'

/** Whether a value of the statement cannot be stored by Postgres (SQLSTATE class 22). */
export const isWrongData = (error: unknown): boolean => postgresFailure(error)?.code.startsWith('22') ?? false

interface PostgresFailure {
  code: string
  message: string
  constraint?: string
}

/** Returns the error of Postgres, which Drizzle wraps. */
export function postgresFailure(error: unknown): PostgresFailure | undefined {
  if (!(error instanceof Error)) return undefined
  if ('code' in error && typeof error.code === 'string') return error as Error & PostgresFailure
  return postgresFailure(error.cause)
}

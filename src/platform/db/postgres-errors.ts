/** The name of the unique constraint that a statement broke; undefined for any other failure. */
export function uniqueViolation(error: unknown): string | undefined {
  const known = postgresFailure(error)
  return known?.code === '23505' ? known.constraint : undefined
}

/** Ended by Postgres for the sake of another transaction: nothing is wrong with it, and it may be done again. */
export function isConflict(error: unknown): boolean {
  const code = postgresFailure(error)?.code
  return code === '40001' || code === '40P01'
}

/** Of lost sessions, and of connections, memory or disk that ran out: nothing is wrong with the statement. */
const UNAVAILABLE = /^(08|57P|53)/
/** The drivers' own words for it, which have no code. */
const LOST = /^(Connection terminated|Client (has encountered|was closed))/

/** The same request may well succeed a moment later. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error && typeof error.code === 'string') return UNAVAILABLE.test(error.code)
  // Without a code of Postgres, the driver has got no answer of Postgres.
  if (error.name === 'NeonDbError' || LOST.test(error.message)) return true
  return isUnavailable(error.cause) || (isQuery(error) && isNetworkLost(error.cause))
}

const isQuery = ({ message }: Error) => message.startsWith('Failed query')
/** The runtime's word, which may be about anything else that was fetched. */
const isNetworkLost = (error: unknown) => error instanceof Error && error.message.startsWith('Network connection lost')

/** The control database ended the statement, which took longer than it allows. */
export const isCancelled = (error: unknown): boolean => postgresFailure(error)?.code === '57014'

/** A value that Postgres cannot hold; the same statement without it may well succeed. */
export const isWrongData = (error: unknown): boolean => postgresFailure(error)?.code.startsWith('22') ?? false

interface PostgresFailure {
  code: string
  message: string
  constraint?: string
}

/** What Postgres itself said; Drizzle wraps what the driver throws. */
export function postgresFailure(error: unknown): PostgresFailure | undefined {
  if (!(error instanceof Error)) return undefined
  if ('code' in error && typeof error.code === 'string') return error as Error & PostgresFailure
  return postgresFailure(error.cause)
}

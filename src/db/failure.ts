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

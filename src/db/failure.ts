/** The name of the unique constraint that a statement broke; undefined for any other failure. */
export function uniqueViolation(error: unknown): string | undefined {
  const known = postgresFailure(error)
  return known?.code === '23505' ? known.constraint : undefined
}

interface PostgresFailure {
  code: string
  constraint?: string
}

/** Drizzle wraps what the driver throws. */
function postgresFailure(error: unknown): PostgresFailure | undefined {
  if (!(error instanceof Error)) return undefined
  if ('code' in error && typeof error.code === 'string') return error as Error & PostgresFailure
  return postgresFailure(error.cause)
}

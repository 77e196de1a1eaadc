/** A problem that the operator can fix; the message says what happened and what to do. */
export class StartError extends Error {
  override name = 'StartError'
}

/** The `code` of an error of Node or Postgres. */
export function errorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The error, its cause, the cause of that and so on: drivers and libraries wrap system errors. */
export function causesOf(error: unknown): Error[] {
  return error instanceof Error ? [error, ...causesOf(error.cause)] : []
}

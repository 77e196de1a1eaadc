/** Something the person who starts us can put right; the message says what happened and what to do. */
export class StartError extends Error {
  override name = 'StartError'
}

/** The `code` of an error of Node or of Postgres. */
export function errorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

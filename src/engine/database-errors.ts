import { EngineUnavailable, SqlError, type SqlErrorFields } from './engine-errors.ts'

/** The driver's error for an error message of the server, with the position as text. */
export interface DatabaseError extends Error, Omit<SqlErrorFields, 'message' | 'position'> {
  position?: string
  /** The function in Postgres's source that reported the error. */
  routine?: string
}

export function isDatabaseError(error: unknown): error is DatabaseError {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && /^[0-9A-Z]{5}$/.test(error.code)
}

/** Maps a refused statement to `SqlError` and a session that ended during it to `EngineUnavailable`. */
export function statementFailure(error: unknown, positionOffset: number): Error {
  if (!isDatabaseError(error)) {
    const message = error instanceof Error ? error.message : 'The connection to the database was lost'
    return new EngineUnavailable(message, { cause: error })
  }
  if (error.code.startsWith('57P')) return new EngineUnavailable(error.message, { code: error.code, cause: error })
  const { severity, code, message, hint, detail, where, schema, table, column, constraint } = error
  const position = error.position === undefined ? undefined : Number(error.position) + positionOffset
  return new SqlError({ severity, code, message, position, hint, detail, where, schema, table, column, constraint })
}

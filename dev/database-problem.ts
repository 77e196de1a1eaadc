import { EngineRefusal, EngineUnavailable } from '../src/engine/engine-errors.ts'
import { SettingsRefused } from '../src/engine/settings.ts'
import { causesOf, errorCode, errorMessage, StartError } from './start-error.ts'

const HOST_ERRORS = [EngineUnavailable, EngineRefusal, SettingsRefused]

/** Keyed by error code of Node or SQLSTATE. */
const PROBLEMS: Record<string, string> = {
  ECONNREFUSED: 'Cannot reach the database: is it running?',
  ECONNRESET: 'The database closed the connection: is it running?',
  ETIMEDOUT: 'The database does not answer: can it be reached from here?',
  ENOTFOUND: 'The host of the database is unknown: is its name right?',
  '28P01': 'The database refuses the password: is it that of another installation?',
  '28000': 'The database refuses the login: are the user and the network right?',
  '3D000': 'The database does not exist: is its name right?',
}

/**
 * Replaces an error of a connection to the control database by one line and a hint at the settings to check, and one of a database
 * host by its message; returns any other error unchanged.
 */
export function databaseProblem(error: unknown, hint: string): unknown {
  // An unreachable host is not a problem of the control database.
  if (HOST_ERRORS.some((type) => error instanceof type)) return new StartError(errorMessage(error))
  const code = causesOf(error)
    .map(errorCode)
    .find((code) => code !== undefined && code in PROBLEMS)
  return code === undefined ? error : new StartError(`${PROBLEMS[code]} ${hint}`)
}

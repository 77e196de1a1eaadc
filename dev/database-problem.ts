import { causesOf, errorCode, StartError } from './start-error.ts'

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

/** Replaces a connection error by one line and a hint at the settings to check; returns any other error unchanged. */
export function databaseProblem(error: unknown, hint: string): unknown {
  const code = causesOf(error)
    .map(errorCode)
    .find((code) => code !== undefined && code in PROBLEMS)
  return code === undefined ? error : new StartError(`${PROBLEMS[code]} ${hint}`)
}

import { TOO_MANY_CONNECTIONS } from '../../../engine/connection-limit.ts'
import { EngineUnavailable, SqlTimeout } from '../../../engine/engine.ts'
import type { Finding } from './finding.ts'
import type { AskedLint, HealthLint } from './lints.ts'

const NO_SUCH_DATABASE = '3D000'

const DETAILS: Record<HealthLint, string> = {
  db_not_reachable: 'The database of the project did not answer.',
  db_connection_failing: 'The server of the database refused the session that was to check it.',
  db_connection_limit_reached: 'No session was left for the role that was to check the database.',
}

/** What it says of the database's health that it could not be asked; the lints that stay open cannot be checked. */
export function findingsOfFailure(error: unknown, asked: readonly AskedLint[]): Finding[] {
  const fault = faultOf(error)
  return asked.map((lint) => (lint === fault ? health(fault, DETAILS[fault]) : unavailable(lint, reasonOf(error))))
}

function faultOf(error: unknown): HealthLint | undefined {
  if (!(error instanceof EngineUnavailable)) return undefined
  if (error.code === TOO_MANY_CONNECTIONS) return 'db_connection_limit_reached'
  return error.code === undefined || error.code === NO_SUCH_DATABASE ? 'db_not_reachable' : 'db_connection_failing'
}

function reasonOf(error: unknown): string {
  if (error instanceof EngineUnavailable) return 'the database of the project cannot be reached'
  if (error instanceof SqlTimeout) return `the database did not tell within ${error.timeoutMs / 1000} seconds`
  return error instanceof Error ? `the database says: ${error.message}` : 'the database does not tell'
}

const health = (lint: Finding['lint'], detail: string, name?: string): Finding => ({
  lint,
  detail,
  key: name ? [name] : [],
  metadata: { type: 'health', ...(name && { name }) },
})

export const unavailable = (lint: AskedLint, reason: string): Finding =>
  health('advisor_check_unavailable', `${lint} was not checked: ${reason}.`, lint)

export const notActive = (status: string): Finding =>
  health('project_not_active', `The project is ${status}, so that its database was not checked.`)

import { TOO_MANY_CONNECTIONS } from '../../../engine/connection-limit.ts'
import { EngineUnavailable, SqlTimeout } from '../../../engine/engine-errors.ts'
import type { Finding } from './finding.ts'
import type { HealthLint, RequestableLint } from './lints.ts'

const NO_SUCH_DATABASE = '3D000'

const DETAILS: Record<HealthLint, string> = {
  db_not_reachable: 'The database of the project did not answer.',
  db_connection_failing: 'The database server refused the session of the check.',
  db_connection_limit_reached: 'No connection was left for the role that checks the database.',
}

/** Turns a failed query into a health finding, and reports the other requested lints as not checked. */
export function findingsFromFailure(error: unknown, requested: readonly RequestableLint[]): Finding[] {
  const fault = faultOf(error)
  return requested.map((lint) =>
    lint === fault ? health(fault, DETAILS[fault]) : checkUnavailable(lint, reasonOf(error)),
  )
}

function faultOf(error: unknown): HealthLint | undefined {
  if (!(error instanceof EngineUnavailable)) return undefined
  if (error.code === TOO_MANY_CONNECTIONS) return 'db_connection_limit_reached'
  return error.code === undefined || error.code === NO_SUCH_DATABASE ? 'db_not_reachable' : 'db_connection_failing'
}

function reasonOf(error: unknown): string {
  if (error instanceof EngineUnavailable) return 'the database of the project cannot be reached'
  if (error instanceof SqlTimeout) return `the database did not answer within ${error.timeoutMs / 1000} seconds`
  return error instanceof Error ? `the database answered: ${error.message}` : 'the database gave no reason'
}

const health = (lint: Finding['lint'], detail: string, name?: string): Finding => ({
  lint,
  detail,
  key: name ? [name] : [],
  metadata: { type: 'health', ...(name && { name }) },
})

export const checkUnavailable = (lint: RequestableLint, reason: string): Finding =>
  health('advisor_check_unavailable', `${lint} was not checked: ${reason}.`, lint)

export const projectNotActive = (status: string): Finding =>
  health('project_not_active', `The database was not checked: the project is ${status}.`)

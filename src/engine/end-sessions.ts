import { isDatabaseError } from './database-errors.ts'
import { loginRoles, type ProjectNames, quoteLiteral, quoteLiterals } from './names.ts'
import type { Session } from './session.ts'

const ROUNDS_MAX = 20
const END_WAIT_MS = 2_000
const LOCK_WAIT_MS = 500

/** Condition: the administrator may end the session. A superuser may end all, others those of roles they belong to. */
export const MAY_END = `pg_has_role(coalesce(usesysid, 10), 'USAGE')`

/** Conditions over `pg_stat_activity` that select sessions. */
export const sessionsOfRoles = (roles: readonly string[]) => `usename IN (${quoteLiterals(roles)})`
export const sessionsOfProject = (names: ProjectNames) =>
  `${MAY_END} AND (datname = ${quoteLiteral(names.database)} OR ${sessionsOfRoles(loginRoles(names))})`

const terminateStatement = (condition: string) =>
  `SELECT pg_terminate_backend(pid, ${END_WAIT_MS}) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ${condition}`

/** Ends the sessions once and returns their number; clients may reconnect meanwhile. */
export async function endSessionsOnce(admin: Session, condition: string): Promise<number> {
  return (await admin.rows(terminateStatement(condition))).length
}

/** Ends sessions until none is left. Returns false if clients reconnected in every round. */
export async function endSessions(admin: Session, condition: string): Promise<boolean> {
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    if ((await endSessionsOnce(admin, condition)) === 0) return true
  }
  return false
}

const RETRYABLE_CODES = ['55P03', 'XX000']

/**
 * Runs `change` right after ending the sessions, in the same message, and retries if a session reconnected in between. A
 * session that alters a role or a database in an open transaction would block the change.
 */
export async function changeAfterEndingSessions(admin: Session, condition: string, change: string): Promise<void> {
  const statements = [`SET LOCAL lock_timeout = ${LOCK_WAIT_MS}`, terminateStatement(condition), change].join('; ')
  for (let round = 1; ; round += 1) {
    try {
      await admin.rows(statements)
      return
    } catch (error) {
      if (round === ROUNDS_MAX || !(isDatabaseError(error) && RETRYABLE_CODES.includes(error.code))) throw error
    }
  }
}

import { isDatabaseError } from './failure.ts'
import { loginRoles, type ProjectNames, quoteLiteral, quoteLiterals } from './names.ts'
import type { Session } from './session.ts'

const ROUNDS_MAX = 20
const END_WAIT_MS = 2_000
const LOCK_WAIT_MS = 500

/** A superuser may end all, and others the sessions of their own roles. */
export const MAY_END = `pg_has_role(coalesce(usesysid, 10), 'USAGE')`

/** Selects sessions, as conditions over `pg_stat_activity`. */
export const ofRoles = (roles: readonly string[]) => `usename IN (${quoteLiterals(roles)})`
export const ofProject = (names: ProjectNames) =>
  `${MAY_END} AND (datname = ${quoteLiteral(names.database)} OR ${ofRoles(loginRoles(names))})`

const ending = (whose: string) =>
  `SELECT pg_terminate_backend(pid, ${END_WAIT_MS}) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ${whose}`

/** Returns how many there were; clients that connect again meanwhile are not waited for. */
export async function endPresentSessions(admin: Session, whose: string): Promise<number> {
  return (await admin.rows(ending(whose))).length
}

/** Until none is left; false where some came again each time. */
export async function endSessions(admin: Session, whose: string): Promise<boolean> {
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    if ((await endPresentSessions(admin, whose)) === 0) return true
  }
  return false
}

const HELD_UP = ['55P03', 'XX000']

/**
 * A session that alters a role or a database in a transaction and leaves it open blocks every other change. So such sessions
 * end in the same message, right before the change, and again if they came back in between.
 */
export async function changeEnding(admin: Session, whose: string, change: string): Promise<void> {
  const statements = [`SET LOCAL lock_timeout = ${LOCK_WAIT_MS}`, ending(whose), change].join('; ')
  for (let round = 1; ; round += 1) {
    try {
      await admin.rows(statements)
      return
    } catch (error) {
      if (round === ROUNDS_MAX || !(isDatabaseError(error) && HELD_UP.includes(error.code))) throw error
    }
  }
}

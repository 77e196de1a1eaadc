import { sql } from 'drizzle-orm'
import type { Config } from '../config.ts'
import { inTransaction, rowsOf } from './db/client.ts'
import { controlDatabase } from './db/control-database.ts'

/** A backup of the installation is copying bytes: removals wait until it ends. */
export class RemovalsHeld extends Error {
  override name = 'RemovalsHeld'
}

/** An advisory lock of the control database: removals share it, and a backup of the installation takes it alone. */
export const REMOVALS_LOCK = `hashtextextended('pilothouse removals', 0)`

/**
 * Removes what rows of a moment ago may name: bytes, databases and their archives. Rejects with `RemovalsHeld` while a backup of the
 * installation holds removals, which in turn waits for those that have begun.
 */
export const removing = <Value>(config: Config, remove: () => Promise<Value>): Promise<Value> =>
  inTransaction(controlDatabase(config), async (tx) => {
    const lock = sql.raw(REMOVALS_LOCK)
    const [row] = await rowsOf<{ free: boolean }>(tx, sql`select pg_try_advisory_xact_lock_shared(${lock}) as free`)
    if (!row?.free) throw new RemovalsHeld('a backup of the installation is being made')
    return remove()
  })

import { sql } from 'drizzle-orm'
import type { Config } from '../config.ts'
import { inTransaction, rowsOf } from './db/client.ts'
import { controlDatabase } from './db/control-database.ts'

/** Thrown while a backup of the installation copies bytes: removals are postponed until it ends. */
export class RemovalsPaused extends Error {
  override name = 'RemovalsPaused'
}

/** Advisory lock of the control database. Removals hold it shared, a backup of the installation holds it exclusively. */
export const REMOVALS_LOCK = `hashtextextended('pilothouse removals', 0)`

/**
 * Runs a removal of bytes, databases or archives that a recent copy of the control database may refer to. Rejects with
 * `RemovalsPaused` while a backup of the installation holds the lock; a backup waits for removals that have started.
 */
export const withRemovalLock = <Value>(config: Config, remove: () => Promise<Value>): Promise<Value> =>
  inTransaction(controlDatabase(config), async (tx) => {
    const lock = sql.raw(REMOVALS_LOCK)
    const [row] = await rowsOf<{ free: boolean }>(tx, sql`select pg_try_advisory_xact_lock_shared(${lock}) as free`)
    if (!row?.free) throw new RemovalsPaused('a backup of the installation is being made')
    return remove()
  })

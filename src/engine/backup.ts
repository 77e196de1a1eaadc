import type { Fence } from './fence.ts'

/** Full backups of projects' databases. */
export interface DatabaseBackups {
  /** Makes a consistent backup without interrupting the database. Does nothing if the backup exists. */
  make(backup: Backup, fence?: Fence): Promise<void>
  /** Rejects with `BackupGone` if the backup does not exist. */
  find(backup: Backup): Promise<void>
  /**
   * Restores the database from the backup, or changes nothing; idempotent by `restoreId`. The database is running
   * afterwards, also if the project was paused, and the owner's password is that of the request.
   */
  restore(request: Backup & { restoreId: string; password: string }, fence?: Fence): Promise<void>
  remove(backup: Backup, fence?: Fence): Promise<void>
  /** The backups of all projects. */
  list(): Promise<Backup[]>
}

export interface Backup {
  ref: string
  id: number
}

/** Id of the backup that is made to move a project without backups; it has no row. */
export const MOVE_BACKUP = 0

/** The backup does not exist; retrying does not help. */
export class BackupGone extends Error {
  override readonly name = 'BackupGone'
}

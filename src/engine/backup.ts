import type { Fence } from './engine.ts'

/** Whole copies of projects' databases. */
export interface DatabaseBackups {
  /** Makes a backup of one moment, while the database's sessions go on. One that exists stays as it is. */
  make(backup: Backup, fence?: Fence): Promise<void>
  /** Rejects with `BackupGone` if the backup does not exist. */
  find(backup: Backup): Promise<void>
  /**
   * Puts the database back to the backup, or changes nothing; the owner's password is that of the request. The database may
   * be closed from then on.
   */
  restore(backup: Backup & { password: string }, fence?: Fence): Promise<void>
  remove(backup: Backup, fence?: Fence): Promise<void>
  /** The backups of all projects. */
  list(): Promise<Backup[]>
}

export interface Backup {
  ref: string
  id: number
}

/** There is nothing to restore, and never will be. */
export class BackupGone extends Error {
  override readonly name = 'BackupGone'
}

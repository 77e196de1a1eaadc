import type { DatabaseBackups } from '../backup.ts'
import { NotByDriver } from '../engine.ts'

const none = async () => {
  throw new NotByDriver('the driver neon makes no backups: Neon keeps the history of a project itself')
}

export const noBackups: DatabaseBackups = {
  make: none,
  find: none,
  restore: none,
  remove: async () => {},
  list: async () => [],
}

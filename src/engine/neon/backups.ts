import type { DatabaseBackups } from '../backup.ts'
import { NotByDriver } from '../engine.ts'

const none = async () => {
  throw new NotByDriver('the driver neon makes no backups: restore to a point in time instead')
}

export const noBackups: DatabaseBackups = {
  make: none,
  find: none,
  restore: none,
  remove: async () => {},
  list: async () => [],
}

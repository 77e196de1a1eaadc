import type { DatabaseBackups } from '../backup.ts'
import { UnsupportedByDriver } from '../engine-errors.ts'

const refuseBackups = async () => {
  throw new UnsupportedByDriver('the driver neon makes no backups: restore to a point in time instead')
}

export const noBackups: DatabaseBackups = {
  make: refuseBackups,
  find: refuseBackups,
  restore: refuseBackups,
  remove: async () => {},
  list: async () => [],
}

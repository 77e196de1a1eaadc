import { NotByDriver } from '../engine.ts'
import type { TemporaryLogins } from '../logins.ts'

/** Neon is told each password as it is: members' tokens, which open such logins, are not for others to keep. */
export const noLogins: TemporaryLogins = {
  async put() {
    throw new NotByDriver('the driver neon has no temporary logins')
  },
  end: async () => {},
  list: async () => [],
}

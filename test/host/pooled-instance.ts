import { rm } from 'node:fs/promises'
import type { PostgresInstance } from '../../host/instances/instance.ts'
import { InstancePool } from '../../host/instances/instances.ts'
import type { Instance, Programs } from '../../host/instances/types.ts'
import { usableMemoryBytes } from '../../host/memory.ts'
import { extensiblePrograms } from '../../host/programs.ts'
import { openLimits } from '../../host/settings/cgroup.ts'
import { newHostFolder } from './host-folder.ts'

/** Opens a daemon's instances without the daemon, in a folder of their own. */
export async function openPool(
  programs?: readonly Programs[],
): Promise<{ pool: InstancePool; folder: string; close(): Promise<void> }> {
  const folder = await newHostFolder()
  const pool = new InstancePool({
    folders: { root: folder, run: folder },
    programs: programs ?? (await extensiblePrograms(folder)),
    isDurable: false,
    isArchiving: false,
    sleepAfterSeconds: null,
    memoryBytes: usableMemoryBytes(),
    limits: await openLimits(),
    log: () => {},
  })
  await pool.open()
  return {
    pool,
    folder,
    async close() {
      await pool.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

export interface TestInstance extends Instance {
  /** Stops the server; the next connection starts it again. */
  sleep(): Promise<void>
}

/** Exposes the parts of an instance as its own properties, so that a test can replace them. */
export const testInstance = (instance: PostgresInstance): TestInstance => ({
  name: instance.name,
  get record() {
    return instance.record
  },
  paths: instance.paths,
  programs: instance.programs,
  admin: instance.admin,
  state: () => instance.state(),
  wake: () => instance.wake(),
  resumeByLogin: (login) => instance.resumeByLogin(login),
  connect: () => instance.connect(),
  withAdmin: (database, work) => instance.withAdmin(database, work),
  update: (change) => instance.update(change),
  writeConfiguration: () => instance.writeConfiguration(),
  restart: () => instance.restart(),
  unlessRunning: (work) => instance.unlessRunning(work),
  whileStopped: (work) => instance.whileStopped(work),
  async sleep() {
    await instance.pause()
    await instance.update({ isPaused: false })
  },
})

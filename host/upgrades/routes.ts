import * as z from 'zod'
import { mutation, type Route, route } from '../api/api.ts'
import { Undo } from '../api/backup-routes.ts'
import { OLD, undoRestore } from '../backups/restore.ts'
import { readOwned } from '../instances/files.ts'
import { InstanceUnavailable, Refused } from '../instances/types.ts'
import { findObstacles } from './obstacles.ts'
import { type UpgradeParts, upgradeInstance } from './upgrade.ts'

/** Repeating a failed upgrade with the same id, as after a lost reply, only returns its error. */
const Upgrade = z.strictObject({ version: z.string(), id: z.string().optional() })

/** Upgrades of instances to newer versions of Postgres, which can be undone for a day. */
export function upgradeRoutes(parts: UpgradeParts): Route[] {
  const { pool, endSessions, archive } = parts
  return [
    route('GET', '/instances/{name}/upgrade', async ({ name }) => {
      const instance = pool.require(name)
      if (instance.record.isPaused) throw new InstanceUnavailable('The project is paused')
      const { programs } = instance
      const targets = pool.versions.filter(({ major }) => Number(major) > Number(programs.major))
      const [newest] = targets
      return {
        version: programs.version,
        targets: targets.map(({ version }) => version),
        size_bytes: await instance.sizeBytes(),
        obstacles: newest ? await findObstacles(pool, instance, newest) : [],
      }
    }),
    mutation('POST', '/instances/{name}/upgrade', async ({ name, body }) => {
      const { version, id } = await body(Upgrade)
      const instance = pool.require(name)
      const { failedUpgrade } = instance
      if (id !== undefined && failedUpgrade?.id === id) throw failedUpgrade.error
      await upgradeInstance(parts, instance, version).catch((error) => {
        if (id !== undefined) instance.failedUpgrade = { id, error }
        throw error
      })
    }),
    mutation('POST', '/instances/{name}/undo-upgrade', async ({ name, body }) => {
      const options = await body(Undo)
      const instance = pool.require(name)
      const version = await readOwned(`${instance.paths.data}${OLD}/PG_VERSION`, instance.record.account).catch(
        () => '',
      )
      if (!version || Number(version) >= Number(instance.record.major)) {
        const reason = 'there is no data from before an upgrade: it is kept for a day, or until the next restore'
        throw new Refused([{ setting: 'version', reason }])
      }
      await instance.whileReplaced(endSessions, () => undoRestore(archive, instance, options))
    }),
  ]
}

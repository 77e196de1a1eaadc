import { dirname } from 'node:path'
import * as z from 'zod'
import { forEachConcurrently } from '../../src/platform/for-each-concurrently.ts'
import type { Backups } from '../backups/backups.ts'
import { MissingObject } from '../backups/errors.ts'
import { requireVersion } from '../backups/recovery.ts'
import { readRestoreId } from '../backups/restore.ts'
import { requireDiskSpace } from '../instances/disk.ts'
import type { InstancePool } from '../instances/instances.ts'
import { type Instance, Refused } from '../instances/types.ts'
import { mutation, type Route, route, unknown } from './api.ts'

/** Repeating a restore with the same id does nothing. */
const RestoreId = z.strictObject({ id: z.string() })
const Restore = z.union([RestoreId.extend({ backup: z.string() }), RestoreId.extend({ at: z.coerce.date() })])
export const Undo = z.strictObject({ password: z.string().optional() })

const Moment = z.strictObject({ at: z.coerce.date() })

const NO_BACKUP = {
  setting: 'backups',
  reason: 'there is none yet; a restore point or a scheduled backup makes the first',
}

/** The Worker waits only so long for the backups of all instances, each of which takes a request to the bucket. */
const LISTS_AT_ONCE = 16

interface Parts {
  pool: InstancePool
  backups: Backups
  /** Ends the sessions of clients, before the data under them changes. */
  endSessions(name: string): void
}

/** Backups in the archive, and restores from them. */
export function backupRoutes({ pool, backups, endSessions }: Parts): Route[] {
  const toBackup = ({ id, stoppedAt, bytes }: { id: string; stoppedAt: string; bytes: number }) => ({
    id,
    at: stoppedAt,
    bytes,
  })
  const listOf = async (name: string) => (await backups.list(pool.require(name).name)).map(toBackup)
  /** Removes WAL that no backup needs, and ends the archive of an instance without backups: WAL alone restores nothing. */
  const sweepArchive = async (name: string) => {
    const instance = pool.find(name)
    if (!instance) return
    if ((await backups.ids(name)).length === 0) await setArchived(instance, false)
    await backups.sweep(name)
  }
  return [
    route('GET', '/backups', async () => {
      const found: { name: string; id: string }[] = []
      const archived = pool.list().filter(({ record }) => record.isArchived)
      await forEachConcurrently(archived, LISTS_AT_ONCE, async ({ name }) => {
        found.push(...(await backups.ids(name)).map((id) => ({ name, id })))
      })
      return found
    }),
    route('GET', '/instances/{name}/backups', ({ name }) => listOf(name)),
    // A restore begins with this request: it refuses what would fail after the project is out of service.
    route('GET', '/instances/{name}/backups/{id}', async ({ name, params }) => {
      const found = (await backups.list(name)).find(({ id }) => id === params.id) ?? unknown('backup')
      const instance = pool.require(name)
      requireVersion(instance, found)
      await requireDiskSpace(dirname(instance.paths.folder), found.bytes)
      return toBackup(found)
    }),
    mutation('PUT', '/instances/{name}/backups/{id}', async ({ name, params: { id = '' }, query }) => {
      const instance = pool.require(name)
      try {
        await setArchived(instance, true)
        return toBackup(
          await instance.whileStartable(() =>
            backups.make(name, id, { isTemporary: query.get('temporary') === 'true' }),
          ),
        )
      } catch (error) {
        await sweepArchive(name).catch(() => {})
        throw error
      }
    }),
    mutation('DELETE', '/instances/{name}/backups/{id}', async ({ name, params: { id = '' } }) => {
      await backups.remove(name, id)
      await sweepArchive(name)
    }),
    mutation('POST', '/instances/{name}/restore', async ({ name, body }) => {
      const instance = pool.require(name)
      const { id, ...to } = await body(Restore)
      if ((await readRestoreId(instance.paths)) === id) return
      endSessions(name)
      await backups.restore(name, to, id).catch(throwUnknownBackup)
    }),
    mutation('POST', '/instances/{name}/undo-restore', async ({ name, body }) => {
      const options = await body(Undo)
      await pool.require(name).whileReplaced(endSessions, () => backups.undo(name, options))
    }),
    route('GET', '/instances/{name}/recovery-window', async ({ name }) => {
      const window = await backups.window(pool.require(name).name)
      if (!window) throw new Refused([NO_BACKUP])
      return window
    }),
    // Declared as a plain route: a mutation would wait for other, long mutations of the instance.
    route('POST', '/instances/{name}/moment', async ({ name, body }) => {
      const now = new Date()
      const { record, programs } = pool.require(name)
      const { at } = await body(Moment)
      const { size, sleepAfterSeconds: sleep_after_seconds, settings, access } = record
      const spec = { version: programs.major, size, settings, access, sleep_after_seconds }
      return { now, ...(await backups.moment(name, at)), spec }
    }),
    mutation('POST', '/instances/{name}/drill', ({ name }) => backups.drill(name)),
  ]
}

/** Only instances with a backup archive their WAL. */
async function setArchived(instance: Instance, isArchived: boolean): Promise<void> {
  if ((instance.record.isArchived ?? false) !== isArchived) await instance.update({ isArchived })
  // Applied even if it is recorded already: a request before this one may have failed in between.
  await instance.writeConfiguration()
  if (instance.state() === 'running') await instance.admin.rows('SELECT pg_reload_conf()')
}

function throwUnknownBackup(error: unknown): never {
  if (error instanceof MissingObject) unknown('backup')
  throw error
}

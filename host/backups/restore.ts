import { rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { errorCode } from '../../dev/start-error.ts'
import { ignoreMissing } from '../copies/data-files.ts'
import { historyName } from '../copies/wal-segments.ts'
import { setOwnerPassword, withAdminAt } from '../instances/admin.ts'
import { exists, readOwned, replaceFile, syncFolder } from '../instances/files.ts'
import type { Locks } from '../instances/locks.ts'
import { adoptServer, removeData } from '../instances/server.ts'
import {
  type AdminSession,
  type Instance,
  type InstancePaths,
  type InstanceRecord,
  type Instances,
  InstanceUnavailable,
  Refused,
} from '../instances/types.ts'
import type { Archive } from './archive.ts'
import type { RestorePlan } from './plan.ts'
import { ownerOf, recover } from './recovery.ts'
import { readTimeline, startTimeline } from './wal.ts'
import { feedFolders } from './wal-feed.ts'

/** Suffixes of the folders beside the data folder, in the order in which a restore creates them. */
export const NEW = '.new'
const READY = '.ready'
export const OLD = '.old'
/** Data that an undoing replaces: until the logins are current, a crash puts it back into service. */
const UNDONE = '.reverting'
/** Data that an undoing of an older version was removing when it was killed. */
const REMOVED = '.undone'
const HOUR_MS = 3_600_000

/** File in the data folder with the id of the restore that made it. A switch to other data switches it, too. */
const RESTORE_ID = 'pilothouse_restore_id'

/** The id of the restore whose data is in service, which makes repeating it a no-op. */
export const readRestoreId = ({ data }: Pick<InstancePaths, 'data'>): Promise<string | undefined> =>
  readOwned(join(data, RESTORE_ID)).catch(ignoreMissing)

export interface UndoOptions {
  /** The owner's new password; undefined leaves it as it is. */
  password?: string | undefined
}

interface Login {
  name: string
  password: string | null
  until: string | null
  enabled: boolean
}

/** Recovers into a folder beside the current data and then switches to it; a failure leaves the current data in service. */
export async function restoreTo(archive: Archive, instance: Instance, plan: RestorePlan, id?: string): Promise<void> {
  const { data, socket } = instance.paths
  const place = { data: `${data}${NEW}`, socket: `${socket}.new` }
  const recovered = await recover(archive, ownerOf(instance), place, plan)
  try {
    // Clients are served during the recovery, which may take hours: a password that they change must stay changed.
    const logins = await readLogins(instance)
    await withAdminAt(place.socket, 'postgres', (admin) => restoreLogins(admin, logins))
    await recovered.finish()
    if (id !== undefined) await replaceFile(join(place.data, RESTORE_ID), id, instance.record.account)
  } catch (error) {
    await recovered.drop()
    throw error
  }
  await switchData(archive, instance, place.data)
}

const LOGINS = `SELECT rolname AS name, rolpassword AS password, rolvaliduntil::text AS until, rolcanlogin AS enabled
  FROM pg_authid`

type Logins = readonly Login[] | undefined

/**
 * Codes of errors in a session with a server whose files are damaged or missing. The role or the database of the session then may
 * not exist (28000, 3D000). A lack of resources (53) is temporary.
 */
const DAMAGED = /^(28000|3D000|58|XX)/

/** Reads the current logins. Returns undefined if the server does not start or cannot read them: a restore or undo must work even then. */
const readLogins = ({ admin }: Instance): Promise<Logins> =>
  admin.rows<Login>(LOGINS).catch((error) => {
    if (error instanceof InstanceUnavailable || DAMAGED.test(errorCode(error) ?? '')) return undefined
    throw error
  })

/**
 * Gives logins their current passwords, and keeps out those that are locked now: a login that was removed or changed since the backup
 * cannot be used again.
 */
async function restoreLogins(admin: AdminSession, logins: Logins): Promise<void> {
  const removed = logins ? 'l.name IS NULL' : `a.rolname ~ '^(cli|jit)_login_'`
  await admin.rows(
    `UPDATE pg_authid AS a SET rolpassword = NULL FROM pg_authid AS b
       LEFT JOIN jsonb_to_recordset($1) AS l (name text) ON l.name = b.rolname
      WHERE a.oid = b.oid AND ${removed}`,
    [JSON.stringify(logins ?? [])],
  )
  await admin.rows(
    `UPDATE pg_authid AS a
        SET rolpassword = l.password, rolvaliduntil = l.until, rolcanlogin = a.rolcanlogin AND l.enabled
       FROM jsonb_to_recordset($1) AS l (name text, password text, until timestamptz, enabled boolean)
      WHERE a.rolname = l.name`,
    [JSON.stringify(logins ?? [])],
  )
}

/** Switches to the complete data in a folder and keeps the old data, so that the switch can be undone. */
export async function switchData(archive: Archive | undefined, instance: Instance, folder: string): Promise<void> {
  const { data } = instance.paths
  await rm(`${data}${READY}`, { recursive: true, force: true })
  await rename(folder, `${data}${READY}`)
  let isSwitched = false
  try {
    await instance.whileStopped(async () => {
      await rm(`${data}${OLD}`, { recursive: true, force: true })
      await swapData(data, READY, OLD)
      isSwitched = true
    })
    if (!instance.record.isPaused) await instance.admin.rows('SELECT 1')
  } catch (error) {
    if (isSwitched) {
      await instance.whileStopped(() => swapData(data, OLD, NEW))
      await rm(`${data}${NEW}`, { recursive: true, force: true })
      // The new server may have archived its timeline already.
      if (archive) await archiveTimelineOf(archive, instance, data)
    }
    throw error
  }
}

/**
 * Switches back to the data from before the last restore or upgrade; a failure leaves the current data in service. Clients must be
 * refused meanwhile, because logins get their current passwords last.
 */
export async function undoRestore(
  archive: Archive | undefined,
  instance: Instance,
  { password }: UndoOptions = {},
): Promise<void> {
  const { data } = instance.paths
  if (!(await exists(`${data}${OLD}`))) {
    throw new Refused([{ setting: 'restore', reason: 'the data from before the last restore is no longer kept' }])
  }
  const logins = await readLogins(instance)
  let isSwitched = false
  try {
    await instance.whileStopped(async () => {
      await rm(`${data}${NEW}`, { recursive: true, force: true })
      // The stop may take minutes or fail. An earlier record would leave the WAL of that time without a moment.
      if (archive) await archiveTimelineOf(archive, instance, `${data}${OLD}`)
      await swapData(data, OLD, UNDONE)
      isSwitched = true
    })
    await instance.withAdmin('postgres', async (admin) => {
      await restoreLogins(admin, logins)
      if (password !== undefined) await setOwnerPassword(admin, password)
    })
    await rename(`${data}${UNDONE}`, `${data}${NEW}`)
    isSwitched = false
    await syncFolder(dirname(data))
  } catch (error) {
    if (isSwitched) await instance.whileStopped(() => swapData(data, UNDONE, OLD))
    if (archive) await archiveTimelineOf(archive, instance, data)
    throw error
  }
  await rm(`${data}${NEW}`, { recursive: true, force: true })
}

/** Records in the archive that from now on the instance uses the timeline of this data folder. */
export async function archiveTimelineOf(archive: Archive, { name, record }: Instance, data: string): Promise<void> {
  await startTimeline(archive, name, { at: Date.now(), ...(await readTimeline(data, record.account)) })
}

async function swapData(data: string, from: string, to: string): Promise<void> {
  await rename(data, `${data}${to}`)
  await rename(`${data}${from}`, data).catch(async (error) => {
    await rename(`${data}${to}`, data)
    throw error
  })
  await syncFolder(dirname(data))
}

/**
 * Completes or removes restores and drills that a crash interrupted, reverts their undoing, and stops their servers. It must run
 * before the instance starts: a crash between two renames leaves no folder `data`.
 */
export async function sweepLeftovers(paths: InstancePaths, account: InstanceRecord['account']): Promise<void> {
  const { data, socket } = paths
  if (await exists(`${data}${UNDONE}`)) await revertUndoing(paths, account)
  if (!(await exists(data))) {
    for (const suffix of [READY, OLD]) {
      if (!(await exists(`${data}${suffix}`))) continue
      await rename(`${data}${suffix}`, data)
      break
    }
  }
  // A server in recovery survives a daemon that is killed: it is stopped with the removal of its data.
  const recovered = [`${data}${NEW}`, `${data}.drill`].flatMap((folder) => [folder, ...feedFolders(folder)])
  for (const folder of [...recovered, `${data}${READY}`, `${data}${REMOVED}`, `${socket}.new`, `${socket}.drill`])
    await removeData(folder)
}

async function revertUndoing({ data, wal }: InstancePaths, account: InstanceRecord['account']): Promise<void> {
  // The server of the old data survives a daemon that is killed.
  await (await adoptServer({ data }))?.stop()
  if (await exists(data)) await rename(data, `${data}${OLD}`)
  // The archive already says that the instance uses the timeline of the old data.
  const { timeline, history } = await readTimeline(`${data}${UNDONE}`, account)
  await replaceFile(join(wal, historyName(timeline)), history, account)
  await rename(`${data}${UNDONE}`, data)
  await syncFolder(dirname(data))
}

interface Cleanup {
  instances: Instances
  locks: Locks
  log(event: string, fields: Record<string, unknown>): void
}

/**
 * Removes, every hour, the data that restores and upgrades replaced more than a day ago; until then they can be undone. Returns a
 * function that ends this.
 */
export function removeOldDataHourly({ instances, locks, log }: Cleanup): () => Promise<void> {
  const removeAll = async () => {
    for (const { name, paths } of instances.list()) {
      await locks
        .under(name, undefined, () => removeOldData(paths))
        .catch((error) => log('old_data_not_removed', { instance: name, error: String(error) }))
    }
  }
  const clock = setInterval(removeAll, HOUR_MS).unref()
  return async () => clearInterval(clock)
}

async function removeOldData({ data }: InstancePaths): Promise<void> {
  const found = await stat(`${data}${OLD}`).catch(ignoreMissing)
  // Renaming a folder changes its ctime.
  if (found && found.ctimeMs < Date.now() - 24 * HOUR_MS) await rm(`${data}${OLD}`, { recursive: true, force: true })
}

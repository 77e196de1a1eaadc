import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ownAll, readOwned, replaceFile } from '../instances/files.ts'
import { type Server, startServer } from '../instances/server.ts'
import { type Instance, type InstanceRecord, type Programs, Refused } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { type Manifest, unpackBackup } from './base-backup.ts'
import { isOfMajor, type RestorePlan } from './plan.ts'
import { feedFolders, startFeed } from './wal-feed.ts'

interface Place {
  data: string
  /** The folder of the server's socket, which only the daemon and the server can enter. */
  socket: string
}

/** The instance whose data is recovered. */
export interface Owner {
  programs: Programs
  account: InstanceRecord['account']
  /** Writes the configuration files into a data folder. */
  configure(data: string): Promise<void>
}

/** An instance as owner: its data gets the current configuration, `ALTER SYSTEM` settings included. */
export const ownerOf = ({ programs, record, paths }: Instance): Owner => ({
  programs,
  account: record.account,
  async configure(data) {
    for (const file of [...CONFIGURATION, OVERRIDES])
      await replaceFile(join(data, file), await readOwned(join(paths.data, file), record.account), record.account)
  },
})

/** A temporary server, recovered to the moment of a plan. */
export interface Recovered {
  /** Stops the server and leaves data that the instance can use. */
  finish(): Promise<void>
  /** Stops the server and removes its files. */
  drop(): Promise<void>
}

const CONFIGURATION = ['postgresql.conf', 'pg_hba.conf', 'pg_ident.conf']
export const OVERRIDES = 'postgresql.auto.conf'
/** Limit for a recovery, whose time depends on the WAL that it applies. */
export const RECOVERY_SECONDS_MAX = 24 * 3600
const TARGET_NOT_REACHED = /recovery ended before configured recovery target/

/** Recovers beside a running instance. The new server does nothing in its name: no archiving, workers or subscriptions. */
export async function recover(archive: Archive, owner: Owner, place: Place, plan: RestorePlan): Promise<Recovered> {
  requireVersion(owner, plan.base)
  const { account } = owner
  const drop = async () => {
    for (const folder of [place.data, place.socket, ...feedFolders(place.data)])
      await rm(folder, { recursive: true, force: true })
  }
  await drop()
  try {
    await mkdir(place.socket, { recursive: true, mode: 0o700 })
    await ownAll(place.socket, account)
    await mkdir(place.data, { mode: 0o700 })
    await unpackBackup(archive, plan.base, place.data)
    await owner.configure(place.data)
    await replaceFile(join(place.data, 'recovery.signal'), '')
    await ownAll(place.data, account)
    const server = await replay(archive, owner, place, plan)
    return {
      async finish() {
        await server.stop()
        await owner.configure(place.data)
        await rm(place.socket, { recursive: true, force: true })
      },
      async drop() {
        await server.stop()
        await drop()
      },
    }
  } catch (error) {
    await drop()
    throw error
  }
}

/** Refuses a backup of another major version, whose data this one cannot read. */
export function requireVersion({ programs }: Pick<Owner, 'programs'>, { id, version }: Manifest): void {
  if (isOfMajor(version, programs.major)) return
  const reason = `the backup ${id} is of Postgres ${version}, and the project runs ${programs.version}`
  throw new Refused([{ setting: 'backup', reason }])
}

async function replay(archive: Archive, owner: Owner, place: Place, plan: RestorePlan): Promise<Server> {
  const { account, programs } = owner
  const feed = await startFeed(archive, { plan, data: place.data, account })
  const start = async (target: Record<string, string>) => {
    await replaceFile(join(place.data, OVERRIDES), recoverySettings(place, feed.command, plan, target), account)
    const paths = { data: place.data, log: feed.log }
    return startServer({ paths, programs, account, secondsMax: RECOVERY_SECONDS_MAX })
  }
  const { at } = plan
  const target: Record<string, string> = at
    ? { recovery_target_time: at.toISOString().replace('T', ' ').replace('Z', '+00') }
    : { recovery_target: 'immediate' }
  try {
    return await start(target).catch(async (error) => {
      // If the archive has no commit after the moment, Postgres does not find its target: recover to the end instead.
      const isWhole = at && !feed.failure() && TARGET_NOT_REACHED.test(String(error)) && (await feed.isRead())
      if (isWhole) return start({})
      throw feed.failure() ?? error
    })
  } finally {
    await feed.stop()
  }
}

/** Renders the settings that hold only during the recovery. */
export function recoverySettings(
  place: Place,
  command: string,
  { timeline }: RestorePlan,
  target: Record<string, string>,
): string {
  const settings = {
    unix_socket_directories: place.socket,
    hot_standby: 'off',
    // Archiving is on without a command, so that the new timeline's history and segments wait for the instance's own archiver.
    archive_mode: 'on',
    archive_library: '',
    archive_command: '',
    max_worker_processes: '0',
    max_logical_replication_workers: '0',
    primary_conninfo: '',
    recovery_target_timeline: String(timeline),
    recovery_target_action: 'promote',
    restore_command: command,
    ...target,
  }
  return Object.entries(settings)
    .map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
    .join('')
}

import { mkdir, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { requireDiskSpace } from '../instances/disk.ts'
import { makePrivate, ownAll, readOwned, replaceFile } from '../instances/files.ts'
import { type Server, startServer } from '../instances/server.ts'
import { type Instance, type InstanceRecord, type Programs, Refused } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { type Manifest, unpackBackup } from './base-backup.ts'
import { isOfMajor, type RestorePlan } from './plan.ts'
import { startFeed } from './wal-feed.ts'

export interface Place {
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
const RECOVERY_SECONDS_MAX = 24 * 3600
const TARGET_NOT_REACHED = /recovery ended before configured recovery target/

/** Settings that hold only during the recovery, whose server does nothing in the name of the instance. */
const SETTINGS = {
  hot_standby: 'off',
  // Archiving is on without a command, so that the new timeline's history and segments wait for the instance's own archiver.
  archive_mode: 'on',
  archive_library: '',
  archive_command: '',
  max_worker_processes: '0',
  max_logical_replication_workers: '0',
  primary_conninfo: '',
  recovery_target_action: 'promote',
}

/**
 * Unpacks the backup of a plan. `start` starts its server, which applies the WAL of the feed. A standby waits for more at its end.
 */
export async function unpack(
  archive: Archive,
  { owner, place, plan, isStandby }: { owner: Owner; place: Place; plan: RestorePlan; isStandby: boolean },
) {
  const { account, programs } = owner
  await removeAll(place)
  await requireDiskSpace(dirname(place.data), plan.base.bytes)
  await makePrivate(place.socket, account)
  await mkdir(place.data, { mode: 0o700 })
  await unpackBackup(archive, plan.base, place.data)
  await owner.configure(place.data)
  await replaceFile(join(place.data, isStandby ? 'standby.signal' : 'recovery.signal'), '')
  await ownAll(place.data, account)
  const feed = await startFeed(archive, { plan, data: place.data, account })
  return {
    feed,
    async start(more: Record<string, string>): Promise<Server> {
      const own = { unix_socket_directories: place.socket, recovery_target_timeline: String(plan.timeline) }
      const settings = { ...SETTINGS, ...own, restore_command: feed.command, ...more }
      const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
      await replaceFile(join(place.data, OVERRIDES), lines.join(''), account)
      const paths = { data: place.data, log: feed.log }
      return startServer({ paths, programs, account, secondsMax: RECOVERY_SECONDS_MAX, isStandby }).catch((error) => {
        throw feed.failure() ?? error
      })
    },
  }
}

async function removeAll({ data, socket }: Place): Promise<void> {
  for (const folder of [data, socket]) await rm(folder, { recursive: true, force: true })
}

/** Recovers beside a running instance. */
export async function recover(archive: Archive, owner: Owner, place: Place, plan: RestorePlan): Promise<Recovered> {
  requireVersion(owner, plan.base)
  try {
    const server = await replay(await unpack(archive, { owner, place, plan, isStandby: false }), plan)
    return {
      async finish() {
        await server.stop()
        await owner.configure(place.data)
        await rm(place.socket, { recursive: true, force: true })
      },
      async drop() {
        await server.stop()
        await removeAll(place)
      },
    }
  } catch (error) {
    await removeAll(place)
    throw error
  }
}

/** Refuses a backup of another major version, whose data this one cannot read. */
export function requireVersion({ programs }: Pick<Owner, 'programs'>, { id, version }: Manifest): void {
  if (isOfMajor(version, programs.major)) return
  const reason = `the backup ${id} is of Postgres ${version}, and the project runs ${programs.version}`
  throw new Refused([{ setting: 'backup', reason }])
}

async function replay({ feed, start }: Awaited<ReturnType<typeof unpack>>, { at }: RestorePlan): Promise<Server> {
  const target: Record<string, string> = at
    ? { recovery_target_time: at.toISOString().replace('T', ' ').replace('Z', '+00') }
    : { recovery_target: 'immediate' }
  try {
    return await start(target).catch(async (error) => {
      // If the archive has no commit after the moment, Postgres does not find its target: recover to the end instead.
      if (at && TARGET_NOT_REACHED.test(String(error)) && (await feed.isRead())) return start({})
      throw error
    })
  } finally {
    await feed.stop()
  }
}

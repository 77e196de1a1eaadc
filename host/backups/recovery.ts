import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ownAll } from '../instances/files.ts'
import { type Server, startServer } from '../instances/server.ts'
import { type Instance, type InstanceRecord, type Programs, Refused } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { type Manifest, unpackBackup } from './base-backup.ts'
import { isOfMajor, type RestorePlan } from './plan.ts'
import { startFeed } from './wal-feed.ts'

interface Place {
  data: string
  /** The folder of the server's socket, which is nobody's but the daemon's. */
  socket: string
}

/** The instance whose data is recovered. */
export interface Owner {
  programs: Programs
  account: InstanceRecord['account']
  /** Writes the configuration files into a data folder. */
  configure(data: string): Promise<void>
}

/** The instance's configuration as it stands, with what the server has been told by `ALTER SYSTEM`. */
export const ownerOf = ({ programs, record, paths }: Instance): Owner => ({
  programs,
  account: record.account,
  async configure(data) {
    for (const file of [...CONFIGURATION, OVERRIDES]) await copyFile(join(paths.data, file), join(data, file))
  },
})

/** A server of its own, recovered to the moment of a plan. */
export interface Recovered {
  /** Leaves the data as an instance's own. */
  finish(): Promise<void>
  /** Stops the server and removes all. */
  drop(): Promise<void>
}

const CONFIGURATION = ['postgresql.conf', 'pg_hba.conf', 'pg_ident.conf']
export const OVERRIDES = 'postgresql.auto.conf'
/** Recovery takes as long as it has WAL to apply. */
export const RECOVERY_SECONDS_MAX = 24 * 3600
const ENDED_BEFORE = /recovery ended before configured recovery target/

/** Beside the instance, whose server goes on meanwhile. Nothing acts for the instance: no archiver, worker or subscription. */
export async function recover(archive: Archive, owner: Owner, place: Place, plan: RestorePlan): Promise<Recovered> {
  requireVersion(owner, plan.base)
  const { account } = owner
  const drop = async () => {
    for (const folder of [place.data, place.socket, `${place.data}.wal`])
      await rm(folder, { recursive: true, force: true })
  }
  await drop()
  try {
    await mkdir(place.socket, { recursive: true, mode: 0o700 })
    await ownAll(place.socket, account)
    await mkdir(place.data, { mode: 0o700 })
    await unpackBackup(archive, plan.base, place.data)
    await owner.configure(place.data)
    await writeFile(join(place.data, 'recovery.signal'), '', { mode: 0o600 })
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

/** Data is read by the version that wrote it alone. */
export function requireVersion({ programs }: Pick<Owner, 'programs'>, { id, version }: Manifest): void {
  if (isOfMajor(version, programs.major)) return
  const reason = `the backup ${id} is of Postgres ${version}, and the project runs ${programs.version}`
  throw new Refused([{ setting: 'backup', reason }])
}

async function replay(archive: Archive, owner: Owner, place: Place, plan: RestorePlan): Promise<Server> {
  const { account, programs } = owner
  const folder = `${place.data}.wal`
  const feed = await startFeed(archive, { plan, folder, account })
  const start = async (target: Record<string, string>) => {
    await writeFile(join(place.data, OVERRIDES), overrides(place, feed.command, plan, target), { mode: 0o600 })
    const paths = { data: place.data, log: join(folder, 'recovery.log') }
    return startServer({ paths, programs, account, secondsMax: RECOVERY_SECONDS_MAX })
  }
  const { at } = plan
  const target: Record<string, string> = at
    ? { recovery_target_time: at.toISOString().replace('T', ' ').replace('Z', '+00') }
    : { recovery_target: 'immediate' }
  try {
    return await start(target).catch(async (error) => {
      // The archive reaches to that moment, and holds no commit after it: then it is restored to its end.
      const isWhole = at && !feed.failure() && ENDED_BEFORE.test(String(error)) && (await feed.isRead())
      if (isWhole) return start({})
      throw feed.failure() ?? error
    })
  } finally {
    await feed.stop()
  }
}

export function overrides(
  place: Place,
  command: string,
  { timeline }: RestorePlan,
  target: Record<string, string>,
): string {
  const settings = {
    unix_socket_directories: place.socket,
    hot_standby: 'off',
    // On, so that the new timeline's history and segments wait for the archive; without a place to put them.
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

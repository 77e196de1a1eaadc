import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Archive } from '../backups/archive.ts'
import { unpackBackup } from '../backups/base-backup.ts'
import { isOfMajor, planNewest, type RestorePlan } from '../backups/plan.ts'
import { OVERRIDES, RECOVERY_SECONDS_MAX, recover, recoverySettings } from '../backups/recovery.ts'
import { type Bundle, readTimeline } from '../backups/wal.ts'
import { type Feed, startFeed } from '../backups/wal-feed.ts'
import { ancestorsIn, numberOf, toBytes } from '../copies/wal-segments.ts'
import { ownAll, replaceFile } from '../instances/files.ts'
import type { InstancePool } from '../instances/instances.ts'
import { promoteServer, type Server, startServer } from '../instances/server.ts'
import { type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'

const FOLLOW_MS = 1_000
const POLL_MS = 50

/** An instance that is being created from the archive of another host. */
export interface Arrival {
  archive: Archive
  pool: InstancePool
  record: InstanceRecord
  /** The data folder to create. */
  data: string
}

/** A server that applies the archived WAL of an instance, including WAL that is archived later. */
export interface Follower {
  /** Resolves when the server has read all WAL that the archive had at the call. */
  catchUp(): Promise<void>
  /** Applies the archived WAL, at least up to `lsn` if given, then stops the server and leaves data for the instance. */
  finish(lsn: string | undefined): Promise<void>
  stop(): Promise<void>
}

/** Fills the data folder with the instance's data at the moment of the plan. */
export async function recoverAt({ archive, pool, record, data }: Arrival, plan: RestorePlan): Promise<void> {
  const owner = {
    programs: pool.programsOf(record.major),
    account: record.account,
    async configure(folder: string) {
      await pool.writeConfiguration(folder, record)
      await replaceFile(join(folder, OVERRIDES), '', record.account)
    },
  }
  const place = { data, socket: `${pool.socketOf(record.name)}.new` }
  const recovered = await recover(archive, owner, place, plan)
  await recovered.finish()
}

/** Fills the data folder from the newest backup, and applies the WAL that is archived after it. */
export async function follow({ archive, pool, record, data }: Arrival): Promise<Follower> {
  const plan = await planNewest(archive, record.name)
  checkVersion(plan, record)
  const { account, name } = record
  const socket = `${pool.socketOf(name)}.new`
  await rm(socket, { recursive: true, force: true })
  await mkdir(socket, { recursive: true, mode: 0o700 })
  await ownAll(socket, account)
  await mkdir(data, { mode: 0o700 })
  await unpackBackup(archive, plan.base, data)
  await pool.writeConfiguration(data, record)
  await writeFile(join(data, 'standby.signal'), '', { mode: 0o600 })
  const feed = await startFeed(archive, { plan, data, account })
  const start = async () => {
    const settings = recoverySettings({ data, socket }, feed.command, plan, { wal_retrieve_retry_interval: '100ms' })
    await writeFile(join(data, OVERRIDES), settings, { mode: 0o600 })
    await ownAll(data, account)
    return startServer({
      paths: { data, log: feed.log },
      programs: pool.programsOf(record.major),
      account,
      secondsMax: RECOVERY_SECONDS_MAX,
      isStandby: true,
    })
  }
  const server = await start().catch(async (error) => {
    await feed.stop()
    throw feed.failure() ?? error
  })
  const feedNewBundles = newBundleFeeder({ archive, name, plan }, feed)
  return {
    async catchUp() {
      await feedNewBundles()
      await waitUntilRead(feed, server)
    },
    async finish(lsn) {
      const last = await feedNewBundles()
      const end = last ? endOf(last, plan) : toBytes(plan.base.stopLsn)
      if (lsn !== undefined && end < toBytes(lsn)) throw unarchived(lsn)
      await waitUntilRead(feed, server)
      await promoteServer(server, { data })
      await server.stop()
      // The position where the new timeline branches off: all WAL before it was applied.
      const reached = ancestorsIn((await readTimeline(data, account)).history).get(plan.timeline)
      if (reached === undefined) throw new InstanceUnavailable('The server has not left the timeline of the archive')
      // The last segment may end early, but all WAL before it must have been applied.
      const needed = lsn === undefined ? end - BigInt(plan.base.segmentBytes) : toBytes(lsn)
      if (reached < needed) throw new InstanceUnavailable('The archive could not be applied to its end')
      await replaceFile(join(data, OVERRIDES), '', account)
    },
    async stop() {
      await server.stop()
      await feed.stop()
      await rm(socket, { recursive: true, force: true })
    },
  }
}

function checkVersion({ base }: RestorePlan, { major }: InstanceRecord): void {
  if (isOfMajor(base.version, major)) return
  throw new Refused([{ setting: 'version', reason: `the backup is of Postgres ${base.version}, not ${major}` }])
}

const unarchived = (lsn: string) =>
  new Refused([
    { setting: 'backup', reason: `the archive of this host does not reach ${lsn}: do both hosts use the same bucket?` },
  ])

/** Returns a function that adds newly archived bundles to the feed, and returns the last bundle. */
function newBundleFeeder({ archive, name, plan }: { archive: Archive; name: string; plan: RestorePlan }, feed: Feed) {
  const known = new Set(plan.bundles.map(({ key }) => key))
  return async (): Promise<Bundle | undefined> => {
    const { bundles, timeline } = await planNewest(archive, name, plan.base.id)
    if (timeline !== plan.timeline) throw new InstanceUnavailable('The archive has a new timeline')
    const more = bundles.filter(({ key }) => !known.has(key))
    for (const { key } of more) known.add(key)
    if (more.length > 0) await feed.append(more)
    return bundles.at(-1)
  }
}

const endOf = ({ last }: Bundle, { base: { segmentBytes } }: RestorePlan): bigint =>
  BigInt(numberOf(last, segmentBytes) + 1) * BigInt(segmentBytes)

async function waitUntilRead(feed: Feed, server: Server): Promise<void> {
  let hasEnded = false
  void server.ended.then(() => {
    hasEnded = true
  })
  while (!(await feed.isRead())) {
    if (feed.failure()) throw feed.failure()
    await delay(POLL_MS)
    if (hasEnded) throw feed.failure() ?? new InstanceUnavailable('Postgres ended while it applied the archive')
  }
}

/** Keeps the follower up to date until `isStopped` returns true. */
export async function keepUp(follower: Follower, isStopped: () => boolean): Promise<void> {
  while (!isStopped()) {
    await delay(FOLLOW_MS, undefined, { ref: false })
    if (!isStopped()) await follower.catchUp()
  }
}

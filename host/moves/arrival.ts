import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Archive } from '../backups/archive.ts'
import { isOfMajor, planNewest, type RestorePlan } from '../backups/plan.ts'
import { OVERRIDES, type Owner, type Place, recover, unpack } from '../backups/recovery.ts'
import { readTimeline } from '../backups/wal.ts'
import type { Feed } from '../backups/wal-feed.ts'
import { ancestorsIn, toBytes } from '../copies/wal-segments.ts'
import { replaceFile } from '../instances/files.ts'
import type { InstancePool } from '../instances/instances.ts'
import { promoteServer, type Server } from '../instances/server.ts'
import { type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'

const POLL_MS = 50

/** An instance that is being created from the archive of another host. */
export interface Arrival {
  archive: Archive
  pool: InstancePool
  record: InstanceRecord
  /** The data folder to create. */
  data: string
}

const ownerOf = ({ pool, record }: Arrival): Owner => ({
  programs: pool.programsOf(record.major),
  account: record.account,
  async configure(folder) {
    await pool.writeConfiguration(folder, record)
    await replaceFile(join(folder, OVERRIDES), '', record.account)
  },
})

const placeOf = ({ pool, record, data }: Arrival): Place => ({ data, socket: `${pool.socketOf(record.name)}.new` })

/** Fills the data folder with the instance's data at the moment of the plan. */
export async function recoverAt(arrival: Arrival, plan: RestorePlan): Promise<void> {
  const recovered = await recover(arrival.archive, ownerOf(arrival), placeOf(arrival), plan)
  await recovered.finish()
}

/** A server that applies the archived WAL of an instance, including WAL that is archived later. */
export type Follower = Awaited<ReturnType<typeof follow>>

/** Fills the data folder from the newest backup, and applies the WAL that is archived after it. */
export async function follow(arrival: Arrival) {
  const { archive, record, data } = arrival
  const plan = await planNewest(archive, record.name)
  checkVersion(plan, record)
  const [owner, place] = [ownerOf(arrival), placeOf(arrival)]
  const { feed, start } = await unpack(archive, { owner, place, plan, isStandby: true })
  const server = await start({ wal_retrieve_retry_interval: '100ms' }).catch(async (error) => {
    await feed.stop()
    throw error
  })
  /** Feeds the newly archived WAL, and returns the position where it ends. */
  const feedNewWal = async (): Promise<bigint> => {
    const { bundles, end, timeline } = await planNewest(archive, record.name, plan.base.id)
    if (timeline !== plan.timeline) throw new InstanceUnavailable('The archive has a new timeline')
    await feed.update(bundles)
    return end
  }
  return {
    /** Resolves when the server has read all WAL that the archive had at the call. */
    async catchUp(): Promise<void> {
      await feedNewWal()
      await waitUntilRead(feed, server)
    },
    /** Applies the archived WAL, at least up to `lsn` if given, then stops the server and leaves data for the instance. */
    async finish(lsn: string | undefined): Promise<void> {
      const end = await feedNewWal()
      if (lsn !== undefined && end < toBytes(lsn)) throw unarchived(lsn)
      await waitUntilRead(feed, server)
      await promoteServer(server, { data })
      await server.stop()
      // The position where the new timeline branches off: all WAL before it was applied.
      const reached = ancestorsIn((await readTimeline(data, record.account)).history).get(plan.timeline)
      if (reached === undefined) throw new InstanceUnavailable('The server has not left the timeline of the archive')
      // The last segment may end early, but all WAL before it must have been applied.
      const needed = lsn === undefined ? end - BigInt(plan.base.segmentBytes) : toBytes(lsn)
      if (reached < needed) throw new InstanceUnavailable('The archive could not be applied to its end')
      await owner.configure(data)
    },
    async stop(): Promise<void> {
      await server.stop()
      await feed.stop()
      await rm(place.socket, { recursive: true, force: true })
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

import { ancestorsIn, nameOf, numberOf, segmentAt, segmentBefore, timelineOf, toBytes } from '../copies/wal-segments.ts'
import { Refused } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { listBackups, type Manifest } from './base-backup.ts'
import { type Bundle, listBundles, listTimelines, type TimelineStart } from './wal.ts'

/** The archived objects that a recovery to a moment, or to a backup, needs. */
export interface RestorePlan {
  base: Manifest
  timeline: number
  /** The moment to recover to; undefined stops at the end of the backup. */
  at?: Date
  /** Each with the last of its segments that the recovery may read. */
  bundles: Bundle[]
  /** History files of all timelines, so that recovery gives its new timeline an unused number. */
  histories: Map<number, string>
}

interface Archived {
  backups: Manifest[]
  bundles: Bundle[]
  starts: TimelineStart[]
  histories: Map<number, string>
}

async function readArchive(archive: Archive, name: string): Promise<Archived> {
  const [backups, bundles, starts] = await Promise.all([
    listBackups(archive, name),
    listBundles(archive, name),
    listTimelines(archive, name),
  ])
  const histories = new Map<number, string>()
  for (const { key, timeline } of starts) if (timeline > 1) histories.set(timeline, await archive.text(key))
  return { backups, bundles, starts, histories }
}

/** The timeline and its ancestors, each with the position where it ended; undefined for the timeline itself. */
function lineage({ histories }: Archived, timeline: number): Map<number, bigint | undefined> {
  return new Map<number, bigint | undefined>(ancestorsIn(histories.get(timeline) ?? '')).set(timeline, undefined)
}

interface WalChain {
  bundles: Bundle[]
  coveredAt: number
  /** Position of the first byte after the chain. */
  end: bigint
}

/** Collects the WAL after a backup on a timeline, up to the first gap. */
function collectWal(archived: Archived, base: Manifest, timeline: number): WalChain {
  const ends = lineage(archived, timeline)
  const size = base.segmentBytes
  // The next timeline has the segment within which its ancestor ended, and all later ones.
  const limitOf = (own: number): number => {
    const end = ends.get(own)
    return end === undefined ? Number.POSITIVE_INFINITY : Number(end / BigInt(size))
  }
  const found = { bundles: [] as Bundle[], coveredAt: Date.parse(base.stoppedAt) }
  const start = segmentAt(base.startLsn, size)
  // The backup itself contains the segments up to its end.
  let next = Math.min(segmentBefore(base.stopLsn, size) + 1, limitOf(base.timeline))
  for (const bundle of archived.bundles) {
    const own = timelineOf(bundle.first)
    const first = numberOf(bundle.first, size)
    const last = Math.min(numberOf(bundle.last, size), limitOf(own) - 1)
    if (!ends.has(own) || last < start || last < first) continue
    if (first > next) break
    next = Math.max(next, last + 1)
    found.bundles.push({ ...bundle, last: nameOf(own, last, size) })
    found.coveredAt = Math.max(found.coveredAt, bundle.coveredAt)
  }
  return { ...found, end: BigInt(next) * BigInt(size) }
}

function canBegin(archived: Archived, base: Manifest, timeline: number): boolean {
  const ends = lineage(archived, timeline)
  const end = ends.get(base.timeline)
  return ends.has(base.timeline) && (end === undefined || toBytes(base.stopLsn) <= end)
}

const startOf = ({ starts, backups }: Archived, at: number): number =>
  starts.findLast((start) => start.at <= at)?.timeline ?? backups[0]?.timeline ?? 1

/** Whether a version such as `18.4` has this major version. */
export const isOfMajor = (version: string, major: string): boolean => version.split('.')[0] === major

/** The newest timeline in the archive, 1 if it is empty. Another server of the instance must use a newer one. */
export async function newestTimeline(archive: Archive, name: string): Promise<number> {
  const { backups, starts, bundles } = await readArchive(archive, name)
  return Math.max(
    1,
    ...[...backups, ...starts].map(({ timeline }) => timeline),
    ...bundles.map(({ first }) => timelineOf(first)),
  )
}

/** Plans a recovery to the end of a backup, without any later WAL. */
export async function planBackup(archive: Archive, name: string, id: string): Promise<RestorePlan> {
  const { backups, histories } = await readArchive(archive, name)
  const base = backups.find((backup) => backup.id === id)
  if (!base) throw new Refused([{ setting: 'backup', reason: `there is no backup ${id} of this project` }])
  return { base, timeline: base.timeline, bundles: [], histories }
}

/** Returns whether a chain of WAL reaches a moment. */
type Reaches = (chain: WalChain, base: Manifest, at: Date) => boolean

const byTime: Reaches = ({ coveredAt }, _base, at) => coveredAt >= at.getTime()

/** Whether the chain reaches a position in the WAL: the server's position when it was read, or when the server stopped. */
export const byWal =
  ({ lsn, isStopped }: { lsn: string; isStopped: boolean }): Reaches =>
  ({ end }, { segmentBytes }) =>
    // The shutdown checkpoint starts a segment that is archived only when the server runs again.
    end >= (isStopped ? BigInt(segmentAt(lsn, segmentBytes)) * BigInt(segmentBytes) : toBytes(lsn))

/** Plans a recovery on the timeline that the instance used at that moment, even if it was restored since. */
export async function planMoment(
  archive: Archive,
  name: string,
  at: Date,
  reaches: Reaches = byTime,
): Promise<RestorePlan> {
  const archived = await readArchive(archive, name)
  const timeline = startOf(archived, at.getTime())
  const base = archived.backups.findLast(
    (backup) => Date.parse(backup.stoppedAt) <= at.getTime() && canBegin(archived, backup, timeline),
  )
  if (!base) throw new Refused([{ setting: 'at', reason: `there is no backup from before ${at.toISOString()}` }])
  const found = collectWal(archived, base, timeline)
  if (!reaches(found, base, at)) {
    const until = new Date(found.coveredAt).toISOString()
    throw new Refused([{ setting: 'at', reason: `the archive reaches from ${base.stoppedAt} to ${until}` }])
  }
  return { base, timeline, at, bundles: found.bundles, histories: archived.histories }
}

/**
 * Plans a recovery to the end of the current timeline, from the newest backup or from the one with this id. `end` is the position of
 * the first byte that the archive lacks.
 */
export async function planNewest(
  archive: Archive,
  name: string,
  id?: string,
): Promise<RestorePlan & Pick<WalChain, 'end'>> {
  const archived = await readArchive(archive, name)
  const timeline = startOf(archived, Number.POSITIVE_INFINITY)
  const base = archived.backups.findLast(
    (backup) => (id === undefined || backup.id === id) && canBegin(archived, backup, timeline),
  )
  if (!base) throw new Refused([{ setting: 'backup', reason: `the archive of this host has no backup of ${name}` }])
  const { bundles, end } = collectWal(archived, base, timeline)
  return { base, timeline, bundles, end, histories: archived.histories }
}

/** The range of moments that can be restored; undefined without a backup of this major version. */
export async function archivedWindow(
  archive: Archive,
  name: string,
  major: string,
): Promise<{ earliest: Date; latest: Date } | undefined> {
  const { backups, ...rest } = await readArchive(archive, name)
  const archived = { ...rest, backups: backups.filter(({ version }) => isOfMajor(version, major)) }
  const timeline = startOf(archived, Number.POSITIVE_INFINITY)
  const bases = archived.backups.filter((backup) => canBegin(archived, backup, timeline))
  const newest = bases.at(-1) ?? archived.backups.at(-1)
  if (!newest) return undefined
  const latest = collectWal(archived, newest, timeline).coveredAt
  const earliest = bases.find((base) => collectWal(archived, base, timeline).coveredAt >= latest) ?? newest
  return { earliest: new Date(earliest.stoppedAt), latest: new Date(latest) }
}

/** Tolerance for the time of a bundle, which comes from the clocks of several programs. */
const SLACK_MS = 3_600_000

/** Whether a restore from the oldest backup, or a later one, needs the bundle. */
export function isNeeded(bundle: Bundle, oldest: Manifest): boolean {
  // An upgrade starts a timeline that numbers its segments from the beginning.
  if (timelineOf(bundle.first) !== oldest.timeline) return bundle.coveredAt >= Date.parse(oldest.stoppedAt) - SLACK_MS
  const start = segmentAt(oldest.startLsn, oldest.segmentBytes)
  return numberOf(bundle.last, oldest.segmentBytes) >= start
}

import { numberOf, segmentAt, timelineOf, toBytes } from '../copies/wal-segments.ts'
import { Refused } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { listBackups, type Manifest } from './base-backup.ts'
import { type Bundle, listBundles, listTimelines, type TimelineStart } from './wal.ts'

/** All that recovery to a moment, or to a backup alone, needs of the archive. */
export interface RestorePlan {
  base: Manifest
  timeline: number
  /** Absent for the backup alone. */
  at?: Date
  bundles: Bundle[]
  /** Of all timelines, so that a new one gets a number of its own. */
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

/** The timeline's ancestors and where each was left; itself without an end. */
function lineage({ histories }: Archived, timeline: number): Map<number, bigint | undefined> {
  const ends = new Map<number, bigint | undefined>()
  for (const line of (histories.get(timeline) ?? '').split('\n')) {
    const [, parent, lsn] = /^\s*(\d+)\s+([0-9A-F]+\/[0-9A-F]+)/.exec(line) ?? []
    if (parent && lsn) ends.set(Number(parent), toBytes(lsn))
  }
  return ends.set(timeline, undefined)
}

interface Chain {
  bundles: Bundle[]
  coveredAt: number
  /** The first byte that it does not hold. */
  end: bigint
}

/** The unbroken WAL that follows a backup on a timeline. */
function chain(archived: Archived, base: Manifest, timeline: number): Chain {
  const ends = lineage(archived, timeline)
  const size = base.segmentBytes
  const found = { bundles: [] as Bundle[], coveredAt: Date.parse(base.stoppedAt) }
  const start = segmentAt(base.startLsn, size)
  // The backup itself holds the segments up to its end.
  let next = Number((toBytes(base.stopLsn) - 1n) / BigInt(size)) + 1
  for (const bundle of archived.bundles) {
    const own = timelineOf(bundle.first)
    const end = ends.get(own)
    const [first, last] = [numberOf(bundle.first, size), numberOf(bundle.last, size)]
    if (!ends.has(own) || last < start || (end !== undefined && BigInt(first) * BigInt(size) >= end)) continue
    if (first > next) break
    next = Math.max(next, last + 1)
    found.bundles.push(bundle)
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

/** Of Postgres versions such as `18.4`. */
export const isOfMajor = (version: string, major: string): boolean => version.split('.')[0] === major

export async function newestTimeline(archive: Archive, name: string): Promise<number> {
  const { backups, starts, bundles } = await readArchive(archive, name)
  return Math.max(
    1,
    ...[...backups, ...starts].map(({ timeline }) => timeline),
    ...bundles.map(({ first }) => timelineOf(first)),
  )
}

export async function planBackup(archive: Archive, name: string, id: string): Promise<RestorePlan> {
  const { backups, histories } = await readArchive(archive, name)
  const base = backups.find((backup) => backup.id === id)
  if (!base) throw new Refused([{ setting: 'backup', reason: `there is no backup ${id} of this project` }])
  return { base, timeline: base.timeline, bundles: [], histories }
}

/** Whether the archive reaches to a moment. */
type Reaches = (chain: Chain, base: Manifest, at: Date) => boolean

const byTime: Reaches = ({ coveredAt }, _base, at) => coveredAt >= at.getTime()

/** By what the server had written when it was asked, or when it stopped. */
export const byWal =
  ({ lsn, isStopped }: { lsn: string; isStopped: boolean }): Reaches =>
  ({ end }, { segmentBytes }) =>
    // The checkpoint of its stop begins a segment, which is archived when the server runs again.
    end >= (isStopped ? BigInt(segmentAt(lsn, segmentBytes)) * BigInt(segmentBytes) : toBytes(lsn))

/** On the timeline that the instance lived on at that moment, whatever was restored since. */
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
  const found = chain(archived, base, timeline)
  if (!reaches(found, base, at)) {
    const until = new Date(found.coveredAt).toISOString()
    throw new Refused([{ setting: 'at', reason: `the archive reaches from ${base.stoppedAt} to ${until}` }])
  }
  return { base, timeline, at, bundles: found.bundles, histories: archived.histories }
}

/** All that the archive has of the instance's present timeline, after its newest backup or after the one with this id. */
export async function planNewest(archive: Archive, name: string, id?: string): Promise<RestorePlan> {
  const archived = await readArchive(archive, name)
  const timeline = startOf(archived, Number.POSITIVE_INFINITY)
  const base = archived.backups.findLast(
    (backup) => (id === undefined || backup.id === id) && canBegin(archived, backup, timeline),
  )
  if (!base) throw new Refused([{ setting: 'backup', reason: `the archive of this host has no backup of ${name}` }])
  return { base, timeline, bundles: chain(archived, base, timeline).bundles, histories: archived.histories }
}

/** Every moment between the two can be restored; undefined without a backup of this version. */
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
  const latest = chain(archived, newest, timeline).coveredAt
  const earliest = bases.find((base) => chain(archived, base, timeline).coveredAt >= latest) ?? newest
  return { earliest: new Date(earliest.stoppedAt), latest: new Date(latest) }
}

/** Of the moment when a bundle was made, which clocks of several programs tell. */
const SLACK_MS = 3_600_000

/** WAL from before this backup is needed by no later one. */
export function isNeeded(bundle: Bundle, oldest: Manifest): boolean {
  // An upgrade begins a timeline that counts its segments anew.
  if (timelineOf(bundle.first) !== oldest.timeline) return bundle.coveredAt >= Date.parse(oldest.stoppedAt) - SLACK_MS
  const start = segmentAt(oldest.startLsn, oldest.segmentBytes)
  return numberOf(bundle.last, oldest.segmentBytes) >= start
}

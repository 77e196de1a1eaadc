import { readdir, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { ignoreMissing } from '../copies/data-files.ts'
import { hexOf, nameOf, numberOf, timelineOf } from '../copies/wal-segments.ts'
import { exists, readOwned } from '../instances/files.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import { prefixOf } from './base-backup.ts'

const SEGMENT = /^[0-9A-F]{24}$/
const SEGMENTS_AT_ONCE = 64
/** Files that are not segments were left by a crash if they are older than this. */
const STRAY_MS = 3_600_000
const FLUSH_MS_MAX = 60_000
const ARCHIVER_RETRY_MS = 500

/** Consecutive segments of one timeline in one object. */
export interface Bundle {
  key: string
  first: string
  last: string
  /** Commits before this moment, in milliseconds, are in this object or in those before it. */
  coveredAt: number
  bytes: number
}

/** The moment, in milliseconds, from which on the instance used a timeline. */
export interface TimelineStart {
  key: string
  at: number
  timeline: number
}

/**
 * Uploads the WAL in the spool and then deletes it there. It neither wakes an instance nor keeps it awake. After a crash between
 * upload and deletion, segments are stored twice, which does no harm.
 */
export async function archiveSpool(archive: Archive, instance: Instance): Promise<void> {
  const { name, paths, record } = instance
  const names = (await readdir(paths.wal)).sort()
  // Histories come first, because the segments of a timeline cannot be used without its history.
  for (const file of names.filter((each) => each.endsWith('.history'))) {
    const at = Math.round((await stat(join(paths.wal, file))).mtimeMs)
    await startTimeline(archive, name, {
      at,
      timeline: timelineOf(file),
      history: await readOwned(join(paths.wal, file), record.account),
    })
    await rm(join(paths.wal, file))
  }
  const segments = names.filter((each) => SEGMENT.test(each))
  for (const bundle of await groupIntoBundles(paths.wal, segments)) await putBundle(archive, instance, bundle)
  for (const file of names.filter((each) => !SEGMENT.test(each))) {
    const found = await stat(join(paths.wal, file)).catch(ignoreMissing)
    const isObsolete = /\.(partial|backup)$/.test(file) || (found && found.mtimeMs < Date.now() - STRAY_MS)
    if (isObsolete) await rm(join(paths.wal, file), { force: true })
  }
}

async function groupIntoBundles(spool: string, segments: readonly string[]): Promise<string[][]> {
  const [first] = segments
  if (!first) return []
  const { size } = await stat(join(spool, first))
  const bundles: string[][] = []
  for (const segment of segments) {
    const open = bundles.at(-1)
    const last = open?.at(-1)
    const follows = last && segment === nameOf(timelineOf(last), numberOf(last, size) + 1, size)
    if (open && follows && open.length < SEGMENTS_AT_ONCE) open.push(segment)
    else bundles.push([segment])
  }
  return bundles
}

async function putBundle(archive: Archive, instance: Instance, segments: readonly string[]): Promise<void> {
  const { name, record } = instance
  const spool = instance.paths.wal
  const [first = '', last = ''] = [segments[0], segments.at(-1)]
  const coveredAt = Math.round((await stat(join(spool, last))).mtimeMs)
  await archive.putFiles(`${prefixOf(name)}wal/${first}-${last}-${coveredAt}`, async (tar) => {
    for (const segment of segments) await tar.file(join(spool, segment), segment, record.account)
  })
  for (const segment of segments) await rm(join(spool, segment), { force: true })
}

/** Records in the archive that the instance uses a timeline from a moment on; `history` is the text of its history file. */
export async function startTimeline(
  archive: Archive,
  name: string,
  { at, timeline, history }: Omit<TimelineStart, 'key'> & { history: string },
): Promise<void> {
  await archive.putText(`${prefixOf(name)}timeline/${String(at).padStart(15, '0')}-${hexOf(timeline)}`, history)
}

/** The newest timeline of a data folder, with the text of its history file. The first timeline has none. */
export async function readTimeline(
  data: string,
  account: InstanceRecord['account'],
): Promise<{ timeline: number; history: string }> {
  const newest = (await readdir(join(data, 'pg_wal')))
    .filter((file) => file.endsWith('.history'))
    .sort()
    .at(-1)
  if (!newest) return { timeline: 1, history: '' }
  return { timeline: timelineOf(newest), history: await readOwned(join(data, 'pg_wal', newest), account) }
}

/** Lists bundles ordered by the numbers of their segments, whatever their timeline. */
export async function listBundles(archive: Archive, name: string): Promise<Bundle[]> {
  const objects = await archive.store.list(`${prefixOf(name)}wal/`)
  const bundles = objects.flatMap(({ key, bytes }) => {
    const [, first, last, at] = /wal\/([0-9A-F]{24})-([0-9A-F]{24})-(\d+)$/.exec(key) ?? []
    return first && last ? [{ key, first, last, coveredAt: Number(at), bytes }] : []
  })
  return bundles.sort((a, b) => (a.first.slice(8) < b.first.slice(8) ? -1 : 1))
}

/** Lists the starts of timelines, oldest first. */
export async function listTimelines(archive: Archive, name: string): Promise<TimelineStart[]> {
  const objects = await archive.store.list(`${prefixOf(name)}timeline/`)
  const starts = objects.flatMap(({ key }) => {
    const [, at, id] = /timeline\/(\d+)-([0-9A-F]{8})$/.exec(key) ?? []
    return at && id ? [{ key, at: Number(at), timeline: Number.parseInt(id, 16) }] : []
  })
  return starts.sort((a, b) => a.at - b.at)
}

/** Whether a stopped server has WAL that it would archive at its next start. */
export async function hasUnarchivedWal(data: string): Promise<boolean> {
  const statuses = await readdir(join(data, 'pg_wal', 'archive_status'))
  return statuses.some((file) => file.endsWith('.ready'))
}

/**
 * Archives all commits and one more after them, at which a restore to any moment until now can stop. Returns a position in the WAL
 * that is after all of those commits.
 */
export async function flushWal(archive: Archive, instance: Instance): Promise<string> {
  const startedAt = new Date()
  const [message] = await instance.admin.rows<{ lsn: string }>(
    `SELECT pg_logical_emit_message(true, 'pilothouse', 'flush')::text AS lsn`,
  )
  const [row] = await instance.admin.rows<{ segment: string }>('SELECT pg_walfile_name(pg_switch_wal()) AS segment')
  const wal = join(instance.paths.data, 'pg_wal')
  // After the segment has been archived, a checkpoint removes both files.
  const isDone = async () =>
    (await exists(join(wal, `archive_status/${row?.segment}.done`))) || !(await exists(join(wal, String(row?.segment))))
  const until = Date.now() + FLUSH_MS_MAX
  for (let retriedAt = Date.now(); !(await isDone()); await delay(20)) {
    if (Date.now() > until) throw new InstanceUnavailable('The server does not archive its WAL')
    if (Date.now() < retriedAt + ARCHIVER_RETRY_MS) continue
    // An archiver that ended within 10 s of its start, as when archiving is turned on, is restarted by a new session.
    await instance.withAdmin('postgres', (admin) => admin.rows('SELECT'))
    retriedAt = Date.now()
  }
  // File times come from a clock that is some milliseconds behind.
  await utimes(join(instance.paths.wal, String(row?.segment)), startedAt, startedAt).catch(ignoreMissing)
  await archiveSpool(archive, instance)
  return String(message?.lsn)
}

import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import type { Statement } from '../../engine/engine.ts'
import { SqlError } from '../../engine/engine-errors.ts'
import { projects } from '../../model/tables/index.ts'
import { removeAllUnder, removeBlobs } from '../../platform/blobs/remove.ts'
import { BlobsNotRemoved, openStore } from '../../platform/blobs/store.ts'
import { describeError } from '../../platform/http/log.ts'
import { RemovalsPaused } from '../../platform/removals.ts'
import { withTimeout } from '../../platform/timeout.ts'
import { openProject } from '../gateway/open-project.ts'
import { blobKey, blobPrefix, isVersion, projectPrefix } from './blob-key.ts'
import { asServer, type Storage } from './database.ts'
import { deleteExpiredUploads, deleteUploads, expiredUploads, uploadsWithParts } from './statements/resumable.ts'
import {
  anyRemoved,
  deleteVersionRecords,
  knownVersions,
  removedVersions,
  versionsBetween,
} from './statements/sweep.ts'
import { deleteExpiredTokens } from './statements/tokens.ts'
import {
  DOWNLOAD_MS_MAX,
  endSweep,
  GRACE_MS,
  leaseDueProjects,
  leaseRemovedProjects,
  scheduleSweep,
} from './sweep-schedule.ts'

/** The page size of lists and deletions in S3. */
const PAGE = 1_000
const REMOVED_PAGES_MAX = 20
/** A bucket that hangs must not delay the sweeps of other projects. */
const SWEEP_MS_MAX = 60_000

/** Sweeps the projects that are due: deletes bytes of removed objects and compares pages of the bucket with the rows. */
export async function sweepStorage(ctx: SystemCtx): Promise<void> {
  for (const lease of await leaseDueProjects(ctx)) {
    await sweepWithTimeout(ctx, lease.ref, () => sweepPages(ctx, lease.ref, lease.after))
    await endSweep(ctx, lease)
  }
  for (const { ref } of await leaseRemovedProjects(ctx)) await sweepWithTimeout(ctx, ref, () => sweepRemoved(ctx, ref))
}

async function sweepWithTimeout(ctx: SystemCtx, ref: string, sweep: () => Promise<void>): Promise<void> {
  const timedOut = () => new Error(`The sweep took longer than ${SWEEP_MS_MAX} ms`)
  await withTimeout(SWEEP_MS_MAX, sweep(), timedOut).catch((error) => {
    if (error instanceof RemovalsPaused) ctx.log.info('storage_sweep_postponed', { project: ref })
    else ctx.log.error('storage_sweep_failed', { project: ref, error: describeError(error) })
    return scheduleSweep(ctx, ref, 'failed')
  })
}

const PAGES_PER_SWEEP = 5

async function sweepPages(ctx: SystemCtx, ref: string, from: string | null): Promise<void> {
  let after = from
  for (let page = 0; page < PAGES_PER_SWEEP; page++) {
    after = await sweepProject(ctx, ref, { after, graceMs: GRACE_MS })
    if (after === null) return
  }
  await scheduleSweep(ctx, ref, 'more')
}

async function sweepRemoved(ctx: SystemCtx, ref: string): Promise<void> {
  await removeAllBytes(ctx, ref)
  await ctx.db.update(projects).set({ storageSweepDueAt: null }).where(eq(projects.ref, ref))
}

interface Page {
  /** The last version of the page before; null for the first page. */
  after: string | null
  graceMs: number
}

/** Deletes unreferenced bytes and reports rows without bytes, for one page. Returns the last version of the page; null at the end. */
export async function sweepProject(ctx: SystemCtx, ref: string, options: Page): Promise<string | null> {
  const project = await openProject(ctx, ref)
  if (!project) return null
  const storage = { ctx, project }
  const removed = await deleteRemovedVersions(storage)
  const { orphans, missing, last, hasRemoved, bytes } = await compareWithRows(storage, options)
  if (hasRemoved) await scheduleSweep(ctx, ref, 'waiting')
  const counted =
    options.after === null ? sql<number>`${bytes}` : sql<number>`${projects.storageBytesCounted} + ${bytes}`
  await ctx.db
    .update(projects)
    .set({ storageSweepAfter: last, storageBytesCounted: counted, ...(last === null && { storageBytes: counted }) })
    .where(eq(projects.ref, ref))
  if (removed + orphans > 0) ctx.log.info('storage_swept', { project: ref, removed, orphans })
  if (missing.length > 0) {
    ctx.log.error('storage_bytes_missing', { project: ref, count: missing.length, version: missing[0] })
  }
  return last
}

/** Deletes the bytes of versions that transactions recorded as removed, once no download can be reading them. */
async function deleteRemovedVersions(storage: Storage): Promise<number> {
  const until = new Date(storage.ctx.now().getTime() - DOWNLOAD_MS_MAX)
  let removed = 0
  for (let page = 0; page < REMOVED_PAGES_MAX; page++) {
    const [rows = []] = await asServer(storage, [removedVersions(until, PAGE)])
    // A row that the project's owner wrote may use a removed version again, and the owner's trigger may record any text.
    const unused = rows
      .filter(({ used }) => used !== true)
      .map(versionOf)
      .filter(isVersion)
    const failed = await removeVersions(storage, unused)
    const gone = rows.map(versionOf).filter((version) => !failed.has(version))
    removed += unused.length - failed.size
    const areRecordsDeleted = gone.length === 0 || (await runUnlessReadOnly(storage, deleteVersionRecords(gone)))
    if (failed.size > 0 || !areRecordsDeleted) break
    if (rows.length < PAGE) break
  }
  if (await runUnlessReadOnly(storage, deleteExpiredTokens())) await deleteExpired(storage)
  return removed
}

const EXPIRED_MAX = 10_000
const EXPIRED_PAGES_MAX = 20
/** Uploads per page; each costs a request to the bucket. */
const DROPPED_MAX = 20
const DROPPED_PAGES_MAX = 50

/** Deletes expired resumable uploads and their parts in the bucket. Their other bytes are orphans from then on. */
async function deleteExpired(storage: Storage): Promise<void> {
  const { ctx } = storage
  for (let page = 0; page < EXPIRED_PAGES_MAX; page++) {
    const [[gone] = []] = await asServer(storage, [deleteExpiredUploads(ctx.now(), EXPIRED_MAX)])
    if (gone?.count !== EXPIRED_MAX) break
  }
  for (let page = 0; page < DROPPED_PAGES_MAX; page++) {
    const [rows = []] = await asServer(storage, [expiredUploads(ctx.now(), DROPPED_MAX)])
    const uploads = rows as unknown as PartsRow[]
    if (uploads.length === 0) return
    const dropped = await Promise.allSettled(dropsOf(storage, uploads))
    const gone = uploads.filter((_, n) => dropped[n]?.status === 'fulfilled').map(({ id }) => id)
    await asServer(storage, [deleteUploads(gone)])
    // Parts that the bucket could not drop are left to the next sweep, and do not stop this one.
    if (gone.length < uploads.length) return
  }
}

interface PartsRow {
  id: string
  upload_id: string
}

const dropsOf = ({ ctx, project }: Storage, uploads: readonly PartsRow[]): Promise<void>[] => {
  const { parts } = openStore(ctx)
  return uploads.map(({ id, upload_id: uploadId }) => parts.drop({ key: blobKey(project.ref, id), uploadId }))
}

/** Returns false if the project is read-only: the next sweep then does the same work again. */
async function runUnlessReadOnly(storage: Storage, statement: Statement): Promise<boolean> {
  try {
    await asServer(storage, [statement])
    return true
  } catch (error) {
    if (error instanceof SqlError && error.code === '25006') return false
    throw error
  }
}

/** Compares a page of the bucket with the rows of the same range; ignores versions whose upload may still be running. */
async function compareWithRows(storage: Storage, { after, graceMs }: Page) {
  const { ctx, project } = storage
  const prefix = blobPrefix(project.ref)
  const olderThan = ctx.now().getTime() - graceMs
  const options = { count: PAGE, ...(after !== null && { after: prefix + after }) }
  const { blobs, more } = await openStore(ctx).list(prefix, options)
  const versions = blobs.map(({ key }) => key.slice(prefix.length))
  const old = blobs
    .filter(({ modifiedAt }) => modifiedAt.getTime() < olderThan)
    .map(({ key }) => key.slice(prefix.length))
  const last = more ? (versions.at(-1) ?? null) : null
  const [knownRows = [], referenced = [], [removed] = []] = await asServer(storage, [
    knownVersions(old),
    versionsBetween(after, last, 2 * PAGE),
    anyRemoved(),
  ])
  const known = new Set(knownRows.map(versionOf))
  const orphans = old.filter((version) => !known.has(version))
  await removeVersions(storage, orphans)
  const listed = new Set(versions)
  const removedKeys = new Set(orphans.map((version) => prefix + version))
  const bytes = blobs.reduce((sum, { key, size }) => sum + (removedKeys.has(key) ? 0 : size), 0)
  const missing = referenced.map(versionOf).filter((version) => !listed.has(version) && timeOf(version) < olderThan)
  return { orphans: orphans.length, missing, last, hasRemoved: removed?.any === true, bytes }
}

const versionOf = ({ version }: Record<string, unknown>): string => String(version)

/** When a version was created: it is a version 7 UUID, which begins with its time. */
const timeOf = (version: string): number => Number.parseInt(version.replace('-', '').slice(0, 12), 16)

/** Returns the versions that the bucket did not remove; the next sweep tries again. */
async function removeVersions({ ctx, project }: Storage, versions: readonly string[]): Promise<Set<string>> {
  const prefix = blobPrefix(project.ref)
  if (versions.length === 0) return new Set()
  try {
    await removeBlobs(
      ctx,
      versions.map((version) => prefix + version),
    )
    return new Set()
  } catch (error) {
    if (!(error instanceof BlobsNotRemoved) || error.keys.length === versions.length) throw error
    ctx.log.error('storage_bytes_not_removed', {
      project: project.ref,
      count: error.keys.length,
      error: describeError(error),
    })
    return new Set(error.keys.map((key) => key.slice(prefix.length)))
  }
}

const ABORTED_PAGES_MAX = 500

/**
 * Aborts the unfinished uploads of a project before its database is removed, because lists of the bucket do not contain their
 * parts. A database that does not answer is removed all the same.
 */
export async function abortUploads(ctx: SystemCtx, ref: string): Promise<void> {
  const report = (error: unknown) => ctx.log.info('uploads_not_aborted', { project: ref, error: describeError(error) })
  const project = await openProject(ctx, ref).catch(report)
  if (!project) return
  const storage = { ctx, project }
  let after = NO_ID
  for (let page = 0; page < ABORTED_PAGES_MAX; page++) {
    const results = await asServer(storage, [uploadsWithParts(after, DROPPED_MAX)]).catch(report)
    const uploads = (results?.[0] ?? []) as unknown as PartsRow[]
    // A trigger of the owner may have written ids that the bucket refuses; they must not prevent the removal.
    const dropped = await Promise.allSettled(dropsOf(storage, uploads))
    for (const drop of dropped) if (drop.status === 'rejected') report(drop.reason)
    if (uploads.length < DROPPED_MAX) return
    after = uploads.at(-1)?.id ?? NO_ID
  }
}

const NO_ID = '00000000-0000-0000-0000-000000000000'

/** Deletes everything that a removed project has in the bucket: its objects and its programs. */
export const removeAllBytes = (ctx: SystemCtx, ref: string): Promise<void> => removeAllUnder(ctx, projectPrefix(ref))

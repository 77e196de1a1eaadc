import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { SqlError, type Statement } from '../../engine/engine.ts'
import { projects } from '../../model/tables/index.ts'
import { removeBlobs } from '../../platform/blobs/remove.ts'
import { BlobsNotRemoved, openStore } from '../../platform/blobs/store.ts'
import { describeError } from '../../platform/http/log.ts'
import { RemovalsPaused } from '../../platform/removals.ts'
import { openProject } from '../gateway/open-project.ts'
import { blobKey, blobPrefix, projectPrefix } from './blob-key.ts'
import { asServer } from './database.ts'
import type { Storage } from './request.ts'
import { inTime } from './retry-until-ready.ts'
import { expiredUploads, forgetExpired, forgetUploads } from './statements/resumable.ts'
import { anyRemoved, forgetVersions, knownVersions, removedVersions, versionsBetween } from './statements/sweep.ts'
import { forgetTokens } from './statements/tokens.ts'
import { endTurn, GRACE_MS, READING_MS, sweepAgain, takeRemoved, takeTurns } from './sweep-schedule.ts'

/** As many as S3 lists and removes at a time. */
const PAGE = 1_000
const REMOVED_PAGES_MAX = 20
/** Where a bucket hangs the other projects must still have theirs. */
const SWEEP_MS_MAX = 60_000

/** In the turn of a project the bytes of what was removed go, and pages of what is kept are compared with the rows. */
export async function sweepStorage(ctx: SystemCtx): Promise<void> {
  for (const turn of await takeTurns(ctx)) {
    await attempt(ctx, turn.ref, () => sweepPages(ctx, turn.ref, turn.after))
    await endTurn(ctx, turn)
  }
  for (const { ref } of await takeRemoved(ctx)) await attempt(ctx, ref, () => sweepRemoved(ctx, ref))
}

async function attempt(ctx: SystemCtx, ref: string, sweep: () => Promise<void>): Promise<void> {
  const work = inTime(SWEEP_MS_MAX, sweep()).then((done) => {
    if (!done) throw new Error(`it takes longer than ${SWEEP_MS_MAX} ms`)
  })
  await work.catch((error) => {
    if (error instanceof RemovalsPaused) ctx.log.info('storage_sweep_postponed', { project: ref })
    else ctx.log.error('storage_sweep_failed', { project: ref, error: describeError(error) })
    return sweepAgain(ctx, ref, 'failed')
  })
}

const PAGES_A_TURN = 5

async function sweepPages(ctx: SystemCtx, ref: string, from: string | null): Promise<void> {
  let after = from
  for (let page = 0; page < PAGES_A_TURN; page++) {
    after = await sweepProject(ctx, ref, { after, graceMs: GRACE_MS })
    if (after === null) return
  }
  await sweepAgain(ctx, ref, 'more')
}

async function sweepRemoved(ctx: SystemCtx, ref: string): Promise<void> {
  await removeAllBytes(ctx, ref)
  await ctx.db.update(projects).set({ storageSweepDueAt: null }).where(eq(projects.ref, ref))
}

interface Page {
  /** The version that the page before it ended with; null at the beginning. */
  after: string | null
  graceMs: number
}

/** Bytes that nothing points at any more or never did, and rows whose bytes are gone. Returns where the next page begins; null at the end. */
export async function sweepProject(ctx: SystemCtx, ref: string, options: Page): Promise<string | null> {
  const project = await openProject(ctx, ref)
  if (!project) return null
  const storage = { ctx, project }
  const removed = await removeReplaced(storage)
  const { orphans, missing, last, isWaiting, bytes } = await compare(storage, options)
  if (isWaiting) await sweepAgain(ctx, ref, 'waiting')
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

/** What transactions have written down as no longer pointed at, once nobody reads it any more. */
async function removeReplaced(storage: Storage): Promise<number> {
  const until = new Date(storage.ctx.now().getTime() - READING_MS)
  let removed = 0
  for (let page = 0; page < REMOVED_PAGES_MAX; page++) {
    const [rows = []] = await asServer(storage, [removedVersions(until, PAGE)])
    // The project's owner can write rows by hand: a version that is in use again keeps its bytes.
    const unused = rows.filter(({ used }) => used !== true)
    const left = await removeVersions(storage, unused.map(versionOf))
    const gone = rows.map(versionOf).filter((version) => !left.has(version))
    removed += unused.length - left.size
    const isForgotten = gone.length === 0 || (await unlessReadOnly(storage, forgetVersions(gone)))
    if (left.size > 0 || !isForgotten) break
    if (rows.length < PAGE) break
  }
  if (await unlessReadOnly(storage, forgetTokens())) await dropExpired(storage)
  return removed
}

const EXPIRED_MAX = 10_000
const EXPIRED_PAGES_MAX = 20
/** At a time, each with a request to the bucket. */
const DROPPED_MAX = 20
const DROPPED_PAGES_MAX = 50

/** Of resumable uploads that nobody may go on with the bucket drops the parts; other bytes of theirs have no row, and go as such. */
async function dropExpired(storage: Storage): Promise<void> {
  const { ctx, project } = storage
  for (let page = 0; page < EXPIRED_PAGES_MAX; page++) {
    const [[gone] = []] = await asServer(storage, [forgetExpired(ctx.now(), EXPIRED_MAX)])
    if (gone?.count !== EXPIRED_MAX) break
  }
  const { parts } = openStore(ctx)
  for (let page = 0; page < DROPPED_PAGES_MAX; page++) {
    const [rows = []] = await asServer(storage, [expiredUploads(ctx.now(), DROPPED_MAX)])
    const uploads = rows as { id: string; upload_id: string }[]
    if (uploads.length === 0) return
    const drops = uploads.map(({ id, upload_id: uploadId }) => parts.drop({ key: blobKey(project.ref, id), uploadId }))
    const dropped = await Promise.allSettled(drops)
    const gone = uploads.filter((_, n) => dropped[n]?.status === 'fulfilled').map(({ id }) => id)
    await asServer(storage, [forgetUploads(gone)])
    // One that cannot be dropped keeps nobody from the rest of the sweep; its turn comes again.
    if (gone.length < uploads.length) return
  }
}

/** False where the project is read-only: what could not be noted is done once more in another turn. */
async function unlessReadOnly(storage: Storage, statement: Statement): Promise<boolean> {
  try {
    await asServer(storage, [statement])
    return true
  } catch (error) {
    if (error instanceof SqlError && error.code === '25006') return false
    throw error
  }
}

/** A page of the bytes beside the rows of the same range, both old enough to have found each other. */
async function compare(storage: Storage, { after, graceMs }: Page) {
  const { ctx, project } = storage
  const prefix = blobPrefix(project.ref)
  const olderThan = ctx.now().getTime() - graceMs
  const options = { count: PAGE, ...(after !== null && { after: prefix + after }) }
  const { blobs, more } = await openStore(ctx).list(prefix, options)
  const listed = blobs.map(({ key }) => key.slice(prefix.length))
  const old = blobs
    .filter(({ modifiedAt }) => modifiedAt.getTime() < olderThan)
    .map(({ key }) => key.slice(prefix.length))
  const last = more ? (listed.at(-1) ?? null) : null
  const [known = [], pointed = [], [removed] = []] = await asServer(storage, [
    knownVersions(old),
    versionsBetween(after, last, 2 * PAGE),
    anyRemoved(),
  ])
  const isKnown = new Set(known.map(versionOf))
  const orphans = old.filter((version) => !isKnown.has(version))
  await removeVersions(storage, orphans)
  const isListed = new Set(listed)
  const removedKeys = new Set(orphans.map((version) => prefix + version))
  const bytes = blobs.reduce((sum, { key, size }) => sum + (removedKeys.has(key) ? 0 : size), 0)
  const missing = pointed.map(versionOf).filter((version) => !isListed.has(version) && timeOf(version) < olderThan)
  return { orphans: orphans.length, missing, last, isWaiting: removed?.any === true, bytes }
}

const versionOf = ({ version }: Record<string, unknown>): string => String(version)

/** Versions are version 7 UUIDs: they begin with their time. */
const timeOf = (version: string): number => Number.parseInt(version.replace('-', '').slice(0, 12), 16)

/** Returns those that the bucket would not remove; their turn comes again. */
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
    ctx.log.error('storage_bytes_left', { project: project.ref, count: error.keys.length, error: describeError(error) })
    return new Set(error.keys.map((key) => key.slice(prefix.length)))
  }
}

/** Of a project that is no more: its objects, and the programs that it ran. */
export async function removeAllBytes(ctx: SystemCtx, ref: string): Promise<void> {
  const store = openStore(ctx)
  for (;;) {
    const { blobs, more } = await store.list(projectPrefix(ref), { count: PAGE })
    if (blobs.length > 0)
      await removeBlobs(
        ctx,
        blobs.map(({ key }) => key),
      )
    if (!more) return
  }
}

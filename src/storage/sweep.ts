import { and, eq, inArray, isNull, lt, or, sql } from 'drizzle-orm'
import { openProject } from '../auth/project.ts'
import { BlobsNotRemoved, openStore } from '../blobs/store.ts'
import { projects } from '../db/schema/index.ts'
import type { SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import { blobPrefix, projectPrefix } from './blob-key.ts'
import { asServer } from './database.ts'
import { inTime } from './patience.ts'
import type { Storage } from './request.ts'
import { forgetTokens, forgetVersions, knownVersions, removedVersions, versionsBetween } from './statements.ts'

const PROJECTS_A_SWEEP = 20
/** Of two sweeps that begin at once the later one sees by it what the earlier one has taken. */
const JUST_NOW_MS = 5_000
/** As many as S3 lists and removes at a time. */
const PAGE = 1_000
const REMOVED_PAGES_MAX = 20
/** Longer than any upload takes from its first byte to its row. */
const GRACE_MS = 24 * 60 * 60 * 1000

/** So long may a download of many pieces go on that began before its object was replaced or removed. */
const READING_MS = 15 * 60 * 1000

/** Where a bucket hangs the other projects must still have theirs. */
const SWEEP_MS_MAX = 60_000

/** Projects take turns, those swept longest ago first: the bytes of what was removed go, and a page of what is kept is compared with the rows. */
export async function sweepStorage(ctx: SystemCtx): Promise<void> {
  for (const { ref, after } of await takeTurns(ctx)) {
    await attempt(ctx, ref, () => sweepProject(ctx, ref, { after, graceMs: GRACE_MS }))
  }
  for (const { ref } of await removedProjects(ctx)) await attempt(ctx, ref, () => sweepRemoved(ctx, ref))
}

async function attempt(ctx: SystemCtx, ref: string, sweep: () => Promise<void>): Promise<void> {
  const work = inTime(SWEEP_MS_MAX, sweep()).then((done) => {
    if (!done) throw new Error(`it takes longer than ${SWEEP_MS_MAX} ms`)
  })
  await work.catch((error) => ctx.log.error('storage_sweep_failed', { project: ref, error: describeError(error) }))
}

function takeTurns({ db, now }: SystemCtx) {
  const justNow = new Date(now().getTime() - JUST_NOW_MS)
  const next = db
    .select({ ref: projects.ref })
    .from(projects)
    .where(
      and(
        isNull(projects.removedAt),
        inArray(projects.status, ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY']),
        or(isNull(projects.storageSweptAt), lt(projects.storageSweptAt, justNow)),
      ),
    )
    .orderBy(sql`${projects.storageSweptAt} nulls first`)
    .limit(PROJECTS_A_SWEEP)
    .for('update', { skipLocked: true })
  return db
    .update(projects)
    .set({ storageSweptAt: now() })
    .where(inArray(projects.ref, next))
    .returning({ ref: projects.ref, after: projects.storageSweepAfter })
}

/** Uploads that were under way when their project was removed may have left bytes; by now all of them have ended. */
function removedProjects({ db, now }: SystemCtx) {
  const ended = sql`${projects.removedAt} + ${GRACE_MS} * interval '1 millisecond'`
  return db
    .select({ ref: projects.ref })
    .from(projects)
    .where(
      and(
        lt(projects.removedAt, new Date(now().getTime() - GRACE_MS)),
        or(isNull(projects.storageSweptAt), lt(projects.storageSweptAt, ended)),
      ),
    )
    .limit(PROJECTS_A_SWEEP)
}

async function sweepRemoved(ctx: SystemCtx, ref: string): Promise<void> {
  await removeAllBytes(ctx, ref)
  await ctx.db.update(projects).set({ storageSweptAt: ctx.now() }).where(eq(projects.ref, ref))
}

/** Bytes that nothing points at any more or never did, and rows whose bytes are gone. */
export async function sweepProject(ctx: SystemCtx, ref: string, options: { after: string | null; graceMs: number }) {
  const project = await openProject(ctx, ref)
  if (!project) return
  const storage = { ctx, project }
  const removed = await removeReplaced(storage)
  const { orphans, missing, last } = await compare(storage, options)
  if (last !== options.after) {
    await ctx.db.update(projects).set({ storageSweepAfter: last }).where(eq(projects.ref, ref))
  }
  if (removed + orphans > 0) ctx.log.info('storage_swept', { project: ref, removed, orphans })
  if (missing.length > 0) {
    ctx.log.error('storage_bytes_missing', { project: ref, count: missing.length, version: missing[0] })
  }
}

/** What transactions have written down as no longer pointed at, once nobody reads it any more. */
async function removeReplaced(storage: Storage): Promise<number> {
  const until = new Date(storage.ctx.now().getTime() - READING_MS)
  let removed = 0
  for (let page = 0; page < REMOVED_PAGES_MAX; page++) {
    const [rows = []] = await asServer(storage, [removedVersions(until, PAGE), forgetTokens()])
    // The project's owner can write rows by hand: a version that is in use again keeps its bytes.
    const unused = rows.filter(({ used }) => used !== true)
    const left = await removeVersions(storage, unused.map(versionOf))
    const gone = rows.map(versionOf).filter((version) => !left.has(version))
    if (gone.length > 0) await asServer(storage, [forgetVersions(gone)])
    removed += unused.length - left.size
    if (left.size > 0) break
    if (rows.length < PAGE) break
  }
  return removed
}

/** A page of the bytes beside the rows of the same range, both old enough to have found each other. */
async function compare(storage: Storage, { after, graceMs }: { after: string | null; graceMs: number }) {
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
  const [known = [], pointed = []] = await asServer(storage, [
    knownVersions(old),
    versionsBetween(after, last, 2 * PAGE),
  ])
  const isKnown = new Set(known.map(versionOf))
  const orphans = old.filter((version) => !isKnown.has(version))
  await removeVersions(storage, orphans)
  const isListed = new Set(listed)
  const missing = pointed.map(versionOf).filter((version) => !isListed.has(version) && timeOf(version) < olderThan)
  return { orphans: orphans.length, missing, last }
}

const versionOf = ({ version }: Record<string, unknown>): string => String(version)

/** Versions are version 7 UUIDs: they begin with their time. */
const timeOf = (version: string): number => Number.parseInt(version.replace('-', '').slice(0, 12), 16)

/** Returns those that the bucket would not remove; their turn comes again. */
async function removeVersions({ ctx, project }: Storage, versions: readonly string[]): Promise<Set<string>> {
  const prefix = blobPrefix(project.ref)
  if (versions.length === 0) return new Set()
  try {
    await openStore(ctx).remove(versions.map((version) => prefix + version))
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
    if (blobs.length > 0) await store.remove(blobs.map(({ key }) => key))
    if (!more) return
  }
}

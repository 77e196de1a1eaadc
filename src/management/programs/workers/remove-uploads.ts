import { and, gt, inArray, lt, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { workerTasks, workerUploads } from '../../../model/tables/index.ts'
import { removeAllPossible } from '../../../platform/blobs/remove.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { uploadKey } from '../../../services/runtime/program-keys.ts'
import { CONTEXT_BYTES_MAX } from './uploads.ts'

/** Time left for uploads that were in progress at expiry. */
const GRACE_MS = 60 * 60 * 1000
const SWEPT_MAX = 1_000

/** Whether an upload has an active build. It is then kept, because the build itself reports an invalid context. */
const isBeingBuilt = sql`exists (select from ${workerTasks} where ${workerTasks.uploadId} = ${workerUploads.id}
  and ${workerTasks.state} in ('pending', 'running'))`

/** The number of projects with open uploads that are checked per sweep, chosen at random. */
const PROJECTS_MAX = 20
const LISTED_MAX = 1_000

/** Removes uploads that are too large to be built, which would otherwise stay until they expire. */
export async function removeOversizedUploads(ctx: SystemCtx): Promise<void> {
  const projects = await ctx.db
    .select({ ref: workerUploads.projectRef })
    .from(workerUploads)
    .where(gt(workerUploads.expiresAt, ctx.now()))
    .groupBy(workerUploads.projectRef)
    .orderBy(sql`random()`)
    .limit(PROJECTS_MAX)
  const store = openStore(ctx)
  const found: string[] = []
  for (const { ref } of projects) {
    const { blobs } = await store.list(uploadKey(ref, ''), { count: LISTED_MAX })
    found.push(...blobs.filter(({ size }) => size > CONTEXT_BYTES_MAX).map(({ key }) => key))
  }
  if (found.length === 0) return
  const id = sql`${workerUploads.id}::text`
  const unused = await ctx.db
    .select({ id: workerUploads.id, ref: workerUploads.projectRef })
    .from(workerUploads)
    .where(and(inArray(id, found.map(idIn)), sql`not ${isBeingBuilt}`))
  const oversized = unused.map(keyOf)
  if (oversized.length === 0) return
  await removeAllPossible(ctx, oversized)
  ctx.log.info('worker_uploads_oversized', { count: oversized.length })
}

/** Removes expired uploads and their rows. */
export async function sweepUploads(ctx: SystemCtx): Promise<void> {
  const expired = await ctx.db
    .select({ id: workerUploads.id, ref: workerUploads.projectRef })
    .from(workerUploads)
    .where(and(lt(workerUploads.expiresAt, new Date(ctx.now().getTime() - GRACE_MS)), sql`not ${isBeingBuilt}`))
    .orderBy(workerUploads.expiresAt)
    .limit(SWEPT_MAX)
  if (expired.length === 0) return
  const failed = new Set(await removeAllPossible(ctx, expired.map(keyOf)))
  const ids = expired.filter((upload) => !failed.has(keyOf(upload))).map(({ id }) => id)
  await ctx.db.delete(workerUploads).where(inArray(workerUploads.id, ids))
  ctx.log.info('worker_uploads_removed', { count: ids.length })
}

const idIn = (key: string): string => key.slice(key.lastIndexOf('/') + 1)
const keyOf = ({ ref, id }: { ref: string; id: string }) => uploadKey(ref, id)

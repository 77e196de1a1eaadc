import { and, gt, inArray, lt, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { workerTasks, workerUploads } from '../../../model/tables/index.ts'
import { removeAllPossible } from '../../../platform/blobs/remove.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { uploadKey } from '../../../services/runtime/program-keys.ts'
import { CONTEXT_BYTES_MAX } from './uploads.ts'

/** Bytes that were being PUT as the slot expired have arrived by then. */
const GRACE_MS = 60 * 60 * 1000
const SWEPT_MAX = 1_000

/** A build says itself what is wrong with its context. */
const beingBuilt = sql`exists (select from ${workerTasks} where ${workerTasks.uploadId} = ${workerUploads.id}
  and ${workerTasks.state} in ('pending', 'running'))`

/** Of projects with open slots, one after another as chance will have it. */
const PROJECTS_MAX = 20
const LISTED_MAX = 1_000

/** What is larger than what is built, and would lie there until its slot has expired. */
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
    .where(and(inArray(id, found.map(idIn)), sql`not ${beingBuilt}`))
  const oversized = unused.map(keyOf)
  if (oversized.length === 0) return
  await removeAllPossible(ctx, oversized)
  ctx.log.info('worker_uploads_oversized', { count: oversized.length })
}

/** What was uploaded, once nobody needs it any more. */
export async function sweepUploads(ctx: SystemCtx): Promise<void> {
  const expired = await ctx.db
    .select({ id: workerUploads.id, ref: workerUploads.projectRef })
    .from(workerUploads)
    .where(and(lt(workerUploads.expiresAt, new Date(ctx.now().getTime() - GRACE_MS)), sql`not ${beingBuilt}`))
    .orderBy(workerUploads.expiresAt)
    .limit(SWEPT_MAX)
  if (expired.length === 0) return
  const left = new Set(await removeAllPossible(ctx, expired.map(keyOf)))
  const ids = expired.filter((upload) => !left.has(keyOf(upload))).map(({ id }) => id)
  await ctx.db.delete(workerUploads).where(inArray(workerUploads.id, ids))
  ctx.log.info('worker_uploads_removed', { count: ids.length })
}

const idIn = (key: string): string => key.slice(key.lastIndexOf('/') + 1)
const keyOf = ({ ref, id }: { ref: string; id: string }) => uploadKey(ref, id)

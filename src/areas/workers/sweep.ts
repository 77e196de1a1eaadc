import { and, inArray, lt, sql } from 'drizzle-orm'
import { removeAllPossible } from '../../blobs/remove.ts'
import { workerTasks, workerUploads } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { uploadKey } from '../../runtime/store.ts'

/** Bytes that were being PUT as the slot expired have arrived by then. */
const GRACE_MS = 60 * 60 * 1000
const SWEPT_MAX = 1_000

/** What was uploaded, once nobody needs it any more. */
export async function sweepUploads(ctx: SystemCtx): Promise<void> {
  const beingBuilt = sql`exists (select from ${workerTasks} where ${workerTasks.uploadId} = ${workerUploads.id}
    and ${workerTasks.state} in ('pending', 'running'))`
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

const keyOf = ({ ref, id }: { ref: string; id: string }) => uploadKey(ref, id)

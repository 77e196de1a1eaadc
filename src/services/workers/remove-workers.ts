import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { workers } from '../../model/tables/index.ts'
import { removeBlobs } from '../../platform/blobs/remove.ts'
import { openStore } from '../../platform/blobs/store.ts'
import { workersPrefix } from '../runtime/program-keys.ts'
import { stopInstances } from './instance-control.ts'

/** Maximum number of keys that S3 lists or removes in one request. */
const PAGE = 1_000

/**
 * Removes all workers of a deleted project and their objects in the bucket; objects stored later are left to the sweep.
 */
export async function removeAllWorkers(ctx: SystemCtx, ref: string): Promise<void> {
  const all = await ctx.db.select().from(workers).where(eq(workers.projectRef, ref))
  await Promise.all(all.map((worker) => stopInstances(ctx, worker)))
  await ctx.db.delete(workers).where(eq(workers.projectRef, ref))
  const store = openStore(ctx)
  for (;;) {
    const { blobs, more } = await store.list(workersPrefix(ref), { count: PAGE })
    if (blobs.length > 0)
      await removeBlobs(
        ctx,
        blobs.map(({ key }) => key),
      )
    if (!more) break
  }
}

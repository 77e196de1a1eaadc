import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { workers } from '../../model/tables/index.ts'
import { removeBlobs } from '../../platform/blobs/remove.ts'
import { openStore } from '../../platform/blobs/store.ts'
import { workersPrefix } from '../runtime/program-keys.ts'
import { stopInstances } from './instance-control.ts'

/** As many as S3 lists and removes at a time. */
const PAGE = 1_000

/** All workers of a project that is being removed, with what they have in the bucket; the sweep comes to what is put there later. */
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

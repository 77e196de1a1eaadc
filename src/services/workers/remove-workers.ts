import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { workers } from '../../model/tables/index.ts'
import { removeAllUnder } from '../../platform/blobs/remove.ts'
import { workersPrefix } from '../runtime/program-keys.ts'
import { stopInstances } from './instance-control.ts'

/**
 * Removes all workers of a deleted project and their objects in the bucket; objects stored later are left to the sweep.
 */
export async function removeAllWorkers(ctx: SystemCtx, ref: string): Promise<void> {
  const all = await ctx.db.select().from(workers).where(eq(workers.projectRef, ref))
  await Promise.all(all.map((worker) => stopInstances(ctx, worker)))
  await ctx.db.delete(workers).where(eq(workers.projectRef, ref))
  await removeAllUnder(ctx, workersPrefix(ref))
}

import { and, eq, inArray, lt, notExists } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { removeAllPossible } from '../../../platform/blobs/remove.ts'
import { imageKey, sourceKey } from '../../../services/runtime/program-keys.ts'

const UNUSED_MS = 24 * 60 * 60 * 1000
/** So that nothing is deployed whose bytes are just being removed. */
const MARGIN_MS = 60 * 60 * 1000
/** As many as S3 removes in one request: each has two keys. */
const PORTION = 500
const PORTIONS_MAX = 10

/** Of what was bundled and not deployed, or deployed once: what is unused for longer may soon be gone. */
export const deployableSince = (now: Date): Date => new Date(now.getTime() - UNUSED_MS + MARGIN_MS)

/** Deployments that no function was at for a day: their bytes first, so that none are left that no row leads to. */
export async function removeUnusedDeployments(ctx: SystemCtx): Promise<void> {
  const { db, now, log } = ctx
  const until = new Date(now().getTime() - UNUSED_MS)
  let removed = 0
  for (let n = 0; n < PORTIONS_MAX; n++) {
    const some = await db
      .select({ id: functionDeployments.id, ref: functionDeployments.projectRef })
      .from(functionDeployments)
      .where(
        and(
          lt(functionDeployments.unusedSince, until),
          notExists(db.select().from(functions).where(eq(functions.deploymentId, functionDeployments.id))),
        ),
      )
      .orderBy(functionDeployments.unusedSince)
      .limit(PORTION)
    if (some.length === 0) break
    const left = await removeBytes(ctx, some)
    const ids = some.filter(({ id }) => !left.has(id)).map(({ id }) => id)
    await db.delete(functionDeployments).where(inArray(functionDeployments.id, ids))
    removed += ids.length
    if (some.length < PORTION || left.size > 0) break
  }
  if (removed > 0) log.info('function_deployments_removed', { count: removed })
}

interface Kept {
  ref: string
  id: string
}

/** Returns those of which the bucket would not remove everything; their turn comes again. */
async function removeBytes(ctx: SystemCtx, some: readonly Kept[]): Promise<Set<string>> {
  const keysOf = ({ ref, id }: Kept) => [sourceKey(ref, id), imageKey(ref, id)]
  const kept = new Set(await removeAllPossible(ctx, some.flatMap(keysOf)))
  return new Set(some.filter((one) => keysOf(one).some((key) => kept.has(key))).map(({ id }) => id))
}

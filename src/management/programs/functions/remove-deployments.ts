import { and, desc, eq, gt, inArray, lt, notExists } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { removeAllPossible } from '../../../platform/blobs/remove.ts'
import { imageKey, sourceKey } from '../../../services/runtime/program-keys.ts'
import type { Mutation } from '../../kernel/mutate.ts'

const UNUSED_MS = 24 * 60 * 60 * 1000
/** Time before the removal of a deployment from which it cannot be activated any more. */
const MARGIN_MS = 60 * 60 * 1000
/** Maximum number of unused deployments per project; a bulk update may activate as many bundles. */
const UNUSED_OF_PROJECT_MAX = 1_000
/** Deployments per batch. S3 removes 1,000 keys per request, and a deployment has two. */
const BATCH = 500
const BATCHES_MAX = 10

/** Returns the time since which a deployment may have been unused and still be activated. Older ones may be removed soon. */
export const deployableSince = (now: Date): Date => new Date(now.getTime() - UNUSED_MS + MARGIN_MS)

/**
 * Expires the oldest unused deployments of a project that has no room for another one, so that the next sweep removes them. The
 * caller must hold the project lock, as an activation does.
 */
export async function expireExcessDeployments({ now }: SystemCtx, { tx }: Mutation, ref: string): Promise<void> {
  const { id, projectRef, unusedSince } = functionDeployments
  const excess = tx
    .select({ id })
    .from(functionDeployments)
    .where(and(eq(projectRef, ref), gt(unusedSince, deployableSince(now()))))
    .orderBy(desc(unusedSince))
    .offset(UNUSED_OF_PROJECT_MAX - 1)
  await tx
    .update(functionDeployments)
    .set({ unusedSince: new Date(now().getTime() - UNUSED_MS) })
    .where(inArray(id, excess))
}

/** Removes deployments that no function has used for a day: files first, so that no files remain without a row. */
export async function removeUnusedDeployments(ctx: SystemCtx): Promise<void> {
  const { db, now, log } = ctx
  const until = new Date(now().getTime() - UNUSED_MS)
  let removed = 0
  for (let n = 0; n < BATCHES_MAX; n++) {
    const batch = await db
      .select({ id: functionDeployments.id, ref: functionDeployments.projectRef })
      .from(functionDeployments)
      .where(
        and(
          lt(functionDeployments.unusedSince, until),
          notExists(db.select().from(functions).where(eq(functions.deploymentId, functionDeployments.id))),
        ),
      )
      .orderBy(functionDeployments.unusedSince)
      .limit(BATCH)
    if (batch.length === 0) break
    const failed = await removeFiles(ctx, batch)
    const ids = batch.filter(({ id }) => !failed.has(id)).map(({ id }) => id)
    await db.delete(functionDeployments).where(inArray(functionDeployments.id, ids))
    removed += ids.length
    if (batch.length < BATCH || failed.size > 0) break
  }
  if (removed > 0) log.info('function_deployments_removed', { count: removed })
}

interface DeploymentKey {
  ref: string
  id: string
}

/** Removes the files and returns the ids of deployments for which that failed; the next sweep retries them. */
async function removeFiles(ctx: SystemCtx, batch: readonly DeploymentKey[]): Promise<Set<string>> {
  const keysOf = ({ ref, id }: DeploymentKey) => [sourceKey(ref, id), imageKey(ref, id)]
  const remaining = new Set(await removeAllPossible(ctx, batch.flatMap(keysOf)))
  return new Set(batch.filter((one) => keysOf(one).some((key) => remaining.has(key))).map(({ id }) => id))
}

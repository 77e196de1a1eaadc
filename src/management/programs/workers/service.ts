import { and, eq, isNull, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { workers } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { forgetPlan } from '../../../services/workers/worker-plan.ts'
import { mutate } from '../../kernel/mutate.ts'
import { toWorker } from './convert.ts'
import type { Spelling } from './schema.ts'
import { startWorkerTask } from './worker-tasks.ts'

/** Lists workers, including those being deleted unless a new worker has their name. */
export async function listWorkers(ctx: Ctx, project: ProjectAccess, spelling: Spelling) {
  const rows = await ctx.db
    .selectDistinctOn([workers.name])
    .from(workers)
    .where(eq(workers.projectRef, project.ref))
    .orderBy(workers.name, sql`${workers.deletedAt} desc nulls first`)
  return { data: await Promise.all(rows.map((row) => toWorker(ctx, project, row, spelling))) }
}

interface WorkerKey {
  name: string
  spelling: Spelling
}

export async function getWorker(ctx: Ctx, project: ProjectAccess, { name, spelling }: WorkerKey) {
  const [row] = await ctx.db
    .select()
    .from(workers)
    .where(and(eq(workers.projectRef, project.ref), eq(workers.name, name)))
    .orderBy(sql`${workers.deletedAt} desc nulls first`)
    .limit(1)
  if (!row) throw new ApiError('not_found.worker')
  return { data: await toWorker(ctx, project, row, spelling) }
}

export async function deleteWorker(ctx: Ctx, { ref, organizationId }: ProjectAccess, name: string): Promise<void> {
  const isNamed = and(eq(workers.projectRef, ref), eq(workers.name, name))
  await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const [worker] = await tx
      .update(workers)
      .set({ deletedAt: ctx.now(), updatedAt: ctx.now() })
      .where(and(isNamed, isNull(workers.deletedAt)))
      .returning()
    if (worker) {
      await startWorkerTask(ctx, mutation, { workerId: worker.id, kind: 'teardown', spec: worker.spec })
      return trace({ action: 'worker.delete', organizationId, projectRef: ref, detail: { name } })
    }
    const deleting = await tx.select({ id: workers.id }).from(workers).where(isNamed).limit(1)
    if (deleting.length === 0) throw new ApiError('not_found.worker')
  }).finally(() => forgetPlan(ref))
}

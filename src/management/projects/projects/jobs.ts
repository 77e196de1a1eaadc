import { eq, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineUnavailable } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { deleteProjectRows } from '../../../model/project-rows.ts'
import { logDrains } from '../../../model/tables/index.ts'
import { abortUploads, removeAllBytes } from '../../../services/storage/sweep-bytes.ts'
import { removeAllWorkers } from '../../../services/workers/remove-workers.ts'
import { endProjectRoles } from '../../account/members/end-project-roles.ts'
import { releaseSubdomain } from '../../service-config/domains/quarantine.ts'
import { specOf } from './database-spec.ts'
import { recordPreparation } from './prepare-databases.ts'
import type { Jobs, Step } from './tasks.ts'

const createDatabase: Step = {
  name: 'create_database',
  run: async (ctx, { project }, fence) => {
    await ctx.engine.create(await specOf(ctx, project), fence)
    await recordPreparation(ctx, project)
    return { postgresVersion: await ctx.engine.version(project.ref) }
  },
}
const HEALTH_TIMEOUT_MS = 10_000
const step = (name: string, run: (ctx: SystemCtx, ref: string, fence: Fence) => Promise<void>): Step => ({
  name,
  run: (ctx, { project: { ref } }, fence) => run(ctx, ref, fence),
})

export const checkHealth = step('check_health', async ({ engine }, ref) => {
  const health = await engine.health(ref, HEALTH_TIMEOUT_MS)
  if (!health.healthy) throw new EngineUnavailable(health.error ?? 'the database does not answer')
})

export const projectJobs = {
  create: {
    steps: [createDatabase, checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    failed: () => ({ status: 'INIT_FAILED' }),
  },
  pause: {
    steps: [step('close_database', ({ engine }, ref, fence) => engine.pause(ref, fence))],
    done: { status: 'INACTIVE' },
    event: 'v1.project.paused',
    failed: () => ({ status: 'PAUSE_FAILED' }),
  },
  restore: {
    steps: [step('open_database', ({ engine }, ref, fence) => engine.resume(ref, fence)), checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    event: 'v1.project.restored',
    failed: () => ({ status: 'RESTORE_FAILED' }),
  },
  restart: {
    steps: [step('end_sessions', ({ engine }, ref, fence) => engine.restart(ref, fence)), checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    event: 'v1.project.restarted',
    failed: () => ({ status: 'ACTIVE_UNHEALTHY' }),
  },
  delete: {
    steps: [
      step('abort_uploads', abortUploads),
      step('remove_database', ({ engine }, ref, fence) => engine.remove(ref, fence)),
      step('remove_objects', removeAllBytes),
      step('remove_workers', removeAllWorkers),
    ],
    done: { status: 'REMOVED' },
    event: 'v1.project.removed',
    async ended(mutation, { task, at, project: { ref }, organization: { id, slug } }) {
      const { tx, publish } = mutation
      const actor = { userId: task.actorUserId ?? undefined }
      // The organization is locked, as its project count has just changed.
      await endProjectRoles({ ...mutation, publish: (event) => publish(event, actor) }, { id, slug }, [ref])
      await releaseSubdomain(tx, ref, at)
      await deleteProjectRows(tx, ref)
      // A sweep deletes the drains with their unsent rows, which may be many.
      await tx.update(logDrains).set({ deletedAt: sql`now()` }).where(eq(logDrains.projectRef, ref))
    },
  },
} satisfies Partial<Jobs>

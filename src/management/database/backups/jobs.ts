import { and, desc, eq, inArray } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { BackupGone } from '../../../engine/backup.ts'
import { isDatabaseError } from '../../../engine/database-errors.ts'
import type { PointInTime } from '../../../engine/engine.ts'
import { EngineRefusal } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { passwordOf, runnerPasswordOf } from '../../../model/secrets/project.ts'
import { backups } from '../../../model/tables/index.ts'
import { checkHealth } from '../../projects/projects/jobs.ts'
import { unpreparedColumns } from '../../projects/projects/prepare-databases.ts'
import {
  type Changes,
  type Jobs,
  PermanentError,
  type Step,
  type Task,
  type Work,
} from '../../projects/projects/tasks.ts'
import { applySettings } from '../database-settings/apply-settings.ts'
import { applyReadOnly } from '../database-settings/read-only.ts'
import { removal } from './remove-backups.ts'

/** Restore points kept per project; older ones are removed. */
const RESTORE_POINTS_MAX = 7

const backupOf = ({ projectRef: ref, input }: Task) => ({ ref, id: input.backupId ?? 0 })

/** Creates a step that fails without another attempt if Postgres refuses a statement or the backup is gone. */
const step = (name: string, run: Step['run']): Step => ({
  name,
  run: (ctx, work, fence) => run(ctx, work, fence).catch(rethrowPermanent),
})

/** Fails if the backup no longer exists, and then marks it as removed. */
async function findBackup(ctx: SystemCtx, { task }: Work): Promise<Changes> {
  const backup = backupOf(task)
  await ctx.engine.backups.find(backup).catch(async (error) => {
    const { id } = backup
    if (error instanceof BackupGone) await ctx.db.update(backups).set(removal(ctx.now())).where(eq(backups.id, id))
    throw error
  })
  return unpreparedColumns(ctx)
}

/** Describes the restore by the id of its task, so that another process can continue it. */
const restoreTargetOf = ({ id, projectRef: ref, input }: Task) => ({
  ref,
  id,
  at: new Date((input.targetUnix ?? 0) * 1000),
})

const requirePointInTime = ({ engine }: SystemCtx): PointInTime => {
  if (!engine.pointInTime) throw new PermanentError(`the driver ${engine.name} has no point-in-time recovery`)
  return engine.pointInTime
}

async function finishRestore(ctx: SystemCtx, { project, task }: Work, fence: Fence): Promise<void> {
  const [password, runnerPassword] = await Promise.all([passwordOf(ctx, project), runnerPasswordOf(ctx, project)])
  await requirePointInTime(ctx).finish({ ...restoreTargetOf(task), password, runnerPassword }, fence)
}

/** The restored database has the settings and the read-only mode of an earlier time. */
const applyStoredSettings = step('apply_settings', async (ctx, { project }) => {
  await applySettings(ctx, project)
  await applyReadOnly(ctx, project)
})

/**
 * The database is unchanged until the step `find` is done, and also if the engine refuses to `replace` it, for example because the
 * backup is damaged. After any other failure it may have been replaced, or is replaced later: the engine continues a restore whose caller
 * got no answer.
 */
const failedAfter =
  (find: string, replace: string) =>
  ({ stepsDone, input }: Task, error: unknown) => ({
    status: stepsDone.includes(error instanceof EngineRefusal ? replace : find)
      ? ('RESTORE_FAILED' as const)
      : (input.statusBefore ?? 'ACTIVE_HEALTHY'),
  })

/** SQLSTATEs worth a retry: of connections, locks and concurrent changes. A retry would repeat other errors. */
const TRANSIENT = /^(08|40|55|57|53300|53400)/

function rethrowPermanent(error: unknown): never {
  const isRefused = isDatabaseError(error) && !TRANSIENT.test(error.code)
  if (isRefused || error instanceof BackupGone) throw new PermanentError(error.message, { cause: error })
  throw error
}

export const backupJobs = {
  backup: {
    steps: [step('copy_database', (ctx, { task }, fence) => ctx.engine.backups.make(backupOf(task), fence))],
    done: {},
    failed: () => ({}),
    async ended({ tx }, { task, state, reason, at }) {
      const { ref, id } = backupOf(task)
      const outcome =
        state === 'done'
          ? ({ status: 'COMPLETED', completedAt: at } as const)
          : ({ status: 'FAILED', statusReason: reason ?? null, removedAt: at } as const)
      const [row] = await tx.update(backups).set(outcome).where(eq(backups.id, id)).returning({ kind: backups.kind })
      if (row?.kind !== 'restore_point' || state === 'failed') return
      const old = tx
        .select({ id: backups.id })
        .from(backups)
        .where(and(eq(backups.projectRef, ref), eq(backups.kind, row.kind), eq(backups.status, 'COMPLETED')))
        .orderBy(desc(backups.insertedAt), desc(backups.id))
        .offset(RESTORE_POINTS_MAX)
      await tx.update(backups).set(removal(at)).where(inArray(backups.id, old))
    },
  },
  restore_backup: {
    steps: [
      step('find_backup', findBackup),
      step('replace_database', async (ctx, { project, task }, fence) =>
        ctx.engine.backups.restore(
          { ...backupOf(task), restoreId: task.id, password: await passwordOf(ctx, project) },
          fence,
        ),
      ),
      applyStoredSettings,
      checkHealth,
    ],
    done: { status: 'ACTIVE_HEALTHY' },
    failed: failedAfter('find_backup', 'replace_database'),
  },
  restore_moment: {
    steps: [
      step('find_moment', async (ctx, { project }) => {
        await requirePointInTime(ctx).window(project.ref, ctx.now())
        return unpreparedColumns(ctx)
      }),
      step('begin_restore', (ctx, { task }, fence) => requirePointInTime(ctx).begin(restoreTargetOf(task), fence)),
      step('finish_restore', finishRestore),
      applyStoredSettings,
      checkHealth,
    ],
    done: { status: 'ACTIVE_HEALTHY' },
    failed: failedAfter('find_moment', 'begin_restore'),
  },
} satisfies Partial<Jobs>

import { and, eq } from 'drizzle-orm'
import { EngineRefusal } from '../../../engine/engine-errors.ts'
import { UpgradeFailed } from '../../../engine/upgrades.ts'
import { backups } from '../../../model/tables/index.ts'
import { checkHealth } from '../projects/jobs.ts'
import { unpreparedColumns } from '../projects/prepare-databases.ts'
import { type Jobs, PermanentError, type Step, updateTaskInput } from '../projects/tasks.ts'

const upgradeDatabase: Step = {
  name: 'upgrade_database',
  async run(ctx, { project: { ref }, task }, fence) {
    const { engine } = ctx
    const { version } = task.input
    if (!engine.upgrades || !version) throw new PermanentError(`the driver ${engine.name} cannot upgrade Postgres`)
    await engine.upgrades.run({ ref, id: task.id, version }, fence).catch(async (error) => {
      if (error instanceof UpgradeFailed) await updateTaskInput(ctx, task, { failedPhase: error.phase })
      throw error instanceof EngineRefusal ? new PermanentError(error.message, { cause: error }) : error
    })
    return { postgresVersion: await engine.version(ref), ...unpreparedColumns(ctx) }
  },
}

/** Takes a new backup, as backups of the old version cannot be restored with WAL of the new one. Projects without backups get none. */
const takeBackup: Step = {
  name: 'take_backup',
  async run(ctx, { project, task }, fence) {
    const { ref } = project
    const ofProject = and(eq(backups.projectRef, ref), eq(backups.status, 'COMPLETED'))
    const [earlier] = await ctx.db.select({ id: backups.id }).from(backups).where(ofProject).limit(1)
    if (!earlier || !ctx.engine.capabilities.backups) return undefined
    if (task.input.backupId === undefined) {
      const row = { kind: 'scheduled', projectRef: ref, status: 'PENDING', insertedAt: ctx.now() } as const
      const [inserted] = await ctx.db.insert(backups).values(row).returning({ id: backups.id })
      await updateTaskInput(ctx, task, { backupId: inserted?.id ?? 0 })
    }
    const { backupId: id = 0 } = task.input
    await ctx.engine.backups.make({ ref, id }, fence)
    await ctx.db.update(backups).set({ status: 'COMPLETED', completedAt: ctx.now() }).where(eq(backups.id, id))
    return undefined
  },
}

export const upgradeJobs = {
  upgrade: {
    steps: [upgradeDatabase, checkHealth, takeBackup],
    done: { status: 'ACTIVE_HEALTHY' },
    // The project keeps running in its current version.
    failed: () => ({ status: 'ACTIVE_HEALTHY' }),
    async ended({ tx }, { task, state, reason, at }) {
      const { backupId } = task.input
      if (state === 'done' || backupId === undefined) return
      const outcome = { status: 'FAILED', statusReason: reason ?? null, removedAt: at } as const
      await tx
        .update(backups)
        .set(outcome)
        .where(and(eq(backups.id, backupId), eq(backups.status, 'PENDING')))
    },
  },
} satisfies Partial<Jobs>

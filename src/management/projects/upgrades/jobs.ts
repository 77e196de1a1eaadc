import { and, eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { UpgradeFailed } from '../../../engine/upgrades.ts'
import { backups } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { mutate } from '../../kernel/mutate.ts'
import { checkHealth } from '../projects/jobs.ts'
import { unpreparedColumns } from '../projects/prepare-databases.ts'
import { type Jobs, PermanentError, type Step, type Task, updateTaskInput } from '../projects/tasks.ts'

const upgradeDatabase: Step = {
  name: 'upgrade_database',
  async run(ctx, { project: { ref }, task }, fence) {
    const { engine } = ctx
    const { version } = task.input
    if (!engine.upgrades || !version) throw new PermanentError(`the driver ${engine.name} cannot upgrade Postgres`)
    await engine.upgrades.run({ ref, id: task.id, version }, fence).catch(async (error) => {
      if (error instanceof UpgradeFailed) await updateTaskInput(ctx.db, task, { failedPhase: error.phase })
      throw error
    })
    return { postgresVersion: await engine.version(ref), ...unpreparedColumns(ctx) }
  },
}

/** Inserts the row of the backup and stores its id in the task in one transaction: nothing would end a row that no task names. */
const insertBackup = (ctx: SystemCtx, task: Task): Promise<number> =>
  mutate(ctx, async ({ tx }) => {
    const row = { kind: 'scheduled', projectRef: task.projectRef, status: 'PENDING', insertedAt: ctx.now() } as const
    const { id: backupId } = requireRow(await tx.insert(backups).values(row).returning({ id: backups.id }))
    if (!(await updateTaskInput(tx, task, { backupId })))
      throw new Superseded(`another consumer has taken over ${task.id}`)
    return backupId
  })

/** Takes a backup, because backups of the old version cannot be restored with WAL of the new one. Projects without backups get none. */
const takeBackup: Step = {
  name: 'take_backup',
  async run(ctx, { project, task }, fence) {
    const { ref } = project
    const ofProject = and(eq(backups.projectRef, ref), eq(backups.status, 'COMPLETED'))
    const [earlier] = await ctx.db.select({ id: backups.id }).from(backups).where(ofProject).limit(1)
    if (!earlier || !ctx.engine.capabilities.backups) return
    const id = task.input.backupId ?? (await insertBackup(ctx, task))
    await ctx.engine.backups.make({ ref, id }, fence)
    await ctx.db.update(backups).set({ status: 'COMPLETED', completedAt: ctx.now() }).where(eq(backups.id, id))
  },
}

export const upgradeJobs = {
  upgrade: {
    steps: [upgradeDatabase, checkHealth, takeBackup],
    done: { status: 'ACTIVE_HEALTHY' },
    // The project keeps its version. If the host did not answer, it may already run the new one: the next preparation reads the version.
    // An upgraded database that fails its health check is not healthy; `recoverProjects` reports the project once it answers.
    failed: ({ stepsDone }) => ({
      status: stepsDone.at(-1) === 'upgrade_database' ? 'ACTIVE_UNHEALTHY' : 'ACTIVE_HEALTHY',
      preparation: '',
      preparationDueAt: new Date(0),
    }),
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

import { and, eq, notExists, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import type { ProjectMoves } from '../../../engine/engine.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { type projects as projectRows, projects, projectTasks, REGION_CODES } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { applySettings } from '../../database/database-settings/apply-settings.ts'
import { configurationOf } from '../../database/database-settings/postgres.ts'
import { endReplicaAssociations } from '../../database/private-link/end-associations.ts'
import { readSettings } from '../settings/read-settings.ts'
import { specOf } from './database-spec.ts'
import { unpreparedColumns } from './prepare-databases.ts'
import { isOpenTask, type Jobs, PermanentError, type Step, type Work } from './tasks.ts'

function requireMoves({ engine }: SystemCtx): ProjectMoves {
  if (!engine.moves) throw new PermanentError(`the driver ${engine.name} has no hosts to move between`)
  return engine.moves
}

const step = (
  name: string,
  run: (ctx: SystemCtx, work: Work & { from: string; to: string }, fence: Fence) => ReturnType<Step['run']>,
): Step => ({
  name,
  run: (ctx, work, fence) => {
    const { from = '', to = '' } = work.task.input
    return run(ctx, { ...work, from, to }, fence)
  },
})

/**
 * Copies the project to the new host, where it belongs once this step is recorded. It gets the region of the new host. If the task ends
 * after this step, `settleMoves` opens the project.
 */
const copyToHost = step('copy_to_host', async (ctx, { project, task, from, to }, fence) => {
  const { isSourceLost = false } = task.input
  const { value: settings } = await readSettings(ctx.db, project.ref, 'postgres')
  const request = {
    ...{ spec: await specOf(ctx, project), from, to, isPaused: project.status === 'INACTIVE', isSourceLost },
    configuration: configurationOf(settings),
  }
  const { engineState, region } = await requireMoves(ctx).begin(request, fence)
  return {
    engineState,
    region: REGION_CODES.find((code) => code === region) ?? project.region,
    // Programs keep the old database address in their environment until they restart.
    secretsGeneration: sql`${projects.secretsGeneration} + 1`,
    // The copy has the sleep setting of the plan at its start.
    ...unpreparedColumns(ctx),
  }
})

const openOnHost = step('open_on_host', (ctx, { project: { ref }, to }, fence) => open(ctx, { ref, host: to }, fence))

async function open(ctx: SystemCtx, { ref, host }: { ref: string; host: string }, fence: Fence): Promise<void> {
  const moves = requireMoves(ctx)
  moves.updateHost(ref, host)
  await applySettings(ctx, { ref })
  await moves.open(ref, host, fence)
}

/** Removes the instance from the old host. If that host does not respond, `settleMoves` removes the instance later. */
const leaveHost = step('leave_host', async (ctx, { project: { ref }, task, from }, fence) => {
  if (task.input.isSourceLost) return
  await requireMoves(ctx)
    .removeFrom(ref, from, fence)
    .catch((error) => {
      if (error instanceof Superseded) throw error
      ctx.log.error('host_not_left', { project: ref, host: from, error: describeError(error) })
    })
})

/** Moves a project to another host. The project keeps its status, because it is available except during the switch. */
export const moveJobs = {
  move: {
    steps: [copyToHost, openOnHost, leaveHost],
    done: {},
    failed: () => ({}),
    async ended(mutation, { task: { projectRef, stepsDone }, at }) {
      // Only a project that leaves a lost host has replicas, which stay there: other moves are refused.
      if (stepsDone.includes(copyToHost.name)) await endReplicaAssociations(mutation, projectRef, at)
    },
  },
} satisfies Partial<Jobs>

/** Opens or removes the instances that an interrupted move left sealed. */
export async function settleMoves(ctx: SystemCtx): Promise<void> {
  const { moves } = ctx.engine
  const sealed = (await moves?.listSealed()) ?? []
  for (const { ref, host, hasArrived } of sealed) {
    const project = await findUnmoved(ctx, ref)
    if (!moves || !project) continue
    const fence = async () => isAt(await findUnmoved(ctx, ref), host) === isAt(project, host)
    const settle = async () => {
      if (!isAt(project, host)) await moves.removeFrom(ref, host, fence)
      else if (hasArrived) await open(ctx, { ref, host }, fence)
      else await moves.open(ref, host, fence)
    }
    await settle().then(
      () => ctx.log.info('move_settled', { project: ref, host }),
      (error) => ctx.log.error('move_not_settled', { project: ref, host, error: describeError(error) }),
    )
  }
}

type Project = typeof projectRows.$inferSelect

/** Finds a project that is not being moved; undefined if it is being moved or unknown. */
async function findUnmoved({ db }: SystemCtx, ref: string): Promise<Project | undefined> {
  const open = db
    .select({ one: sql`1` })
    .from(projectTasks)
    .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, 'move'), isOpenTask))
  const [project] = await db
    .select()
    .from(projects)
    .where(and(eq(projects.ref, ref), notExists(open)))
  return project
}

const isAt = (project: Project | undefined, host: string): boolean | undefined =>
  project && (project.engineState as { host?: string } | null)?.host === host

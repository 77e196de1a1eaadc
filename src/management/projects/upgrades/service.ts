import { and, desc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { EngineUnavailable } from '../../../engine/engine-errors.ts'
import type { UpgradeCheck } from '../../../engine/upgrades.ts'
import { projectTasks, RELEASE_CHANNEL } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { UUID } from '../../../platform/identifiers.ts'
import { requireNoReadingRun } from '../../branching/branches/parent-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { mutate } from '../../kernel/mutate.ts'
import { majorOf } from '../projects/convert.ts'
import { ACTIVE } from '../projects/project-states.ts'
import { changeStatus, checkStatus, requireStatus } from '../projects/status.ts'
import { startTask, type Task } from '../projects/tasks.ts'
import {
  PROGRESS,
  UPGRADE_ERRORS,
  type UpgradeEligibility,
  type UpgradePostgres,
  type UpgradeStatus,
} from './schema.ts'

/** Speed measured with tables of small rows, without the start and stop of the servers. */
const BYTES_PER_SECOND = 10 * 2 ** 20
const SECONDS_MIN = 10
const NONE: UpgradeCheck = { targets: [], sizeBytes: 0, obstacles: [] }
/** Obstacle types of the contract that can occur on this installation. */
const KNOWN_OBSTACLES = ['active_replication_slot', 'unsupported_extension']

export async function getEligibility(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof UpgradeEligibility>> {
  const { postgresVersion, status } = project
  const { targets, sizeBytes, obstacles } = ACTIVE.includes(status) ? await checkUpgrade(ctx, project) : NONE
  const known = obstacles.filter(({ type }) => KNOWN_OBSTACLES.includes(type))
  const hours = (sizeBytes / BYTES_PER_SECOND + SECONDS_MIN) / 3600
  return {
    eligible: targets.length > 0 && obstacles.length === 0,
    current_app_version: postgresVersion,
    current_app_version_release_channel: RELEASE_CHANNEL,
    latest_app_version: targets[0] ?? postgresVersion,
    target_upgrade_versions: targets.map((version) => ({
      postgres_version: majorOf(version),
      release_channel: RELEASE_CHANNEL,
      app_version: version,
    })),
    duration_estimate_hours: targets.length > 0 ? Math.ceil(hours * 1000) / 1000 : 0,
    legacy_auth_custom_roles: [],
    objects_to_be_dropped: obstacles.filter((each) => !known.includes(each)).map(({ reason }) => reason),
    unsupported_extensions: known.flatMap(({ extension_name: name }) => name ?? []),
    user_defined_objects_in_internal_schemas: [],
    validation_errors:
      status === 'INACTIVE' ? [{ type: 'project_hibernating' }] : known.map(({ reason: _, ...error }) => error),
    warnings: [],
  }
}

async function checkUpgrade({ engine }: Ctx, { ref }: ProjectAccess): Promise<UpgradeCheck> {
  if (!engine.upgrades) return NONE
  return engine.upgrades.check(ref).catch((error) => {
    if (!(error instanceof EngineUnavailable)) throw error
    throw new ApiError('service_unavailable.project_database', { cause: error })
  })
}

export async function startUpgrade(
  ctx: Ctx,
  project: ProjectAccess,
  { target_version: target, release_channel: channel = RELEASE_CHANNEL }: z.output<typeof UpgradePostgres>,
): Promise<{ tracking_id: string }> {
  const { ref, organizationId, postgresVersion, status } = project
  if (!ctx.engine.upgrades)
    throw driverError(`the driver ${ctx.engine.name} cannot upgrade Postgres: create a project with a newer version`)
  checkStatus(status)
  const { targets, obstacles } = await checkUpgrade(ctx, project)
  const version = targets.find((each) => target === each || target === majorOf(each))
  if (!version)
    throw invalidField(
      'body.target_version',
      targets.length > 0
        ? `must be one of ${targets.join(', ')}`
        : `Postgres ${postgresVersion} is the newest version of this installation`,
      'custom',
    )
  if (channel !== RELEASE_CHANNEL) throw invalidField('body.release_channel', 'must be ga', 'custom')
  const [obstacle] = obstacles
  if (obstacle) throw driverError(obstacle.reason)
  return mutate(ctx, async (mutation) => {
    const before = await requireStatus(mutation, ref)
    await requireNoReadingRun(mutation, ref)
    await changeStatus(mutation, project, { before, status: 'UPGRADING' })
    const id = await startTask(ctx, mutation, { ref, kind: 'upgrade', input: { version: majorOf(version) } })
    const detail = { from: postgresVersion, to: version }
    await mutation.trace({ action: 'project.upgrade', organizationId, projectRef: ref, detail })
    return { tracking_id: id }
  })
}

const driverError = (detail: string) => new ApiError('bad_request.driver', { detail })

/** Returns the progress of the given upgrade, or of the last one. */
export async function getUpgradeStatus(
  ctx: Ctx,
  { ref }: ProjectAccess,
  id: string | undefined,
): Promise<z.input<typeof UpgradeStatus>> {
  const isOne = id === undefined ? undefined : eq(projectTasks.id, id)
  if (id !== undefined && !UUID.test(id.toLowerCase())) return { databaseUpgradeStatus: null }
  const [task] = await ctx.db
    .select()
    .from(projectTasks)
    .where(and(eq(projectTasks.projectRef, ref), eq(projectTasks.kind, 'upgrade'), isOne))
    .orderBy(desc(projectTasks.createdAt))
    .limit(1)
  if (!task) return { databaseUpgradeStatus: null }
  return {
    databaseUpgradeStatus: {
      initiated_at: task.createdAt.toISOString(),
      latest_status_at: (task.finishedAt ?? ctx.now()).toISOString(),
      target_version: task.input.version ?? '',
      ...(await progressOf(ctx, task)),
    },
  }
}

async function progressOf({ engine }: Ctx, { state, stepsDone, input, projectRef }: Task) {
  if (state === 'done') return { status: 1, progress: PROGRESS.done }
  const isUpgraded = stepsDone.includes('upgrade_database')
  if (state === 'failed' || state === 'canceled')
    return { status: 2, error: UPGRADE_ERRORS[isUpgraded ? 'backup' : (input.failedPhase ?? 'complete')] }
  if (isUpgraded) return { status: 0, progress: PROGRESS.upgraded }
  // A host that does not respond is upgrading, or the task will be retried.
  const phase =
    state === 'running' ? ((await engine.upgrades?.phase(projectRef).catch(() => undefined)) ?? 'launch') : 'requested'
  return { status: 0, progress: PROGRESS[phase] }
}

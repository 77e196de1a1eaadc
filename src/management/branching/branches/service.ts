import { and, asc, eq, isNull, sql } from 'drizzle-orm'
import type * as z from 'zod'
import {
  type BranchAccess,
  findProject,
  maySeeSecrets,
  type ProjectAccess,
  requirePermission,
} from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { jwtSecretOf, passwordOf } from '../../../model/secrets/project.ts'
import {
  BRANCH_COLUMNS,
  branches,
  type ProjectStatus,
  projects,
  RELEASE_CHANNEL,
  type RunKind,
} from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { majorOf } from '../../projects/projects/convert.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { renameProject } from '../../projects/projects/rename-project.ts'
import { changeStatus, lockStatus, requireStatus } from '../../projects/projects/status.ts'
import { parseSettingsRow, selectSettings } from '../../projects/settings/read-settings.ts'
import { publishBranchEvent } from './branch-events.ts'
import { toBranch } from './convert.ts'
import { rejectTakenName } from './create-branch.ts'
import { requireMigration } from './migration-version.ts'
import { requireNotifyUrl, setNotifyUrl } from './notify-url.ts'
import { isReadByRun, requireActiveParent, requireNoReadingRun } from './parent-project.ts'
import { isUnfinished, startRun } from './runs.ts'
import type { UpdateBranch } from './schema.ts'

export async function listBranches(ctx: Ctx, project: ProjectAccess) {
  const [branching, rows] = await ctx.db.batch([
    selectSettings(ctx.db, project.ref, 'branching'),
    ctx.db
      .select({ branch: BRANCH_COLUMNS, status: projects.status })
      .from(branches)
      .innerJoin(projects, eq(projects.ref, branches.projectRef))
      .where(and(eq(branches.parentRef, project.ref), isNull(branches.removedAt)))
      .orderBy(asc(branches.createdAt), asc(branches.id)),
  ])
  if (!parseSettingsRow('branching', branching).value.enabled) throw new ApiError('unprocessable.branching_disabled')
  return rows.map(({ branch, status }) => toBranch(branch, status))
}

export async function getBranch({ db }: Ctx, project: ProjectAccess, name: string) {
  const [row] = await db
    .select({ branch: BRANCH_COLUMNS, status: projects.status })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .where(and(eq(branches.parentRef, project.ref), eq(branches.name, name), isNull(branches.removedAt)))
  if (!row) throw new ApiError('not_found.branch')
  return toBranch(row.branch, row.status)
}

/** Returns the connection. The password and the key give full access, so only callers who may read secrets get them. */
export async function getBranchConfig(ctx: Ctx, { project }: BranchAccess) {
  const { host, port, user } = ctx.engine.connection(project)
  return {
    ref: project.ref,
    postgres_version: project.postgresVersion,
    postgres_engine: majorOf(project.postgresVersion),
    release_channel: RELEASE_CHANNEL,
    status: project.status,
    db_host: host,
    db_port: port,
    db_user: user,
    ...(maySeeSecrets(ctx.actor, project.role) && {
      db_pass: await passwordOf(ctx, project),
      jwt_secret: await jwtSecretOf(ctx, project),
    }),
  }
}

export async function updateBranch(ctx: Ctx, access: BranchAccess, input: z.output<typeof UpdateBranch>) {
  const { project } = access
  if (access.isDefault && input.persistent === false) {
    throw new ApiError('unprocessable.branch', { detail: 'the default branch is always persistent' })
  }
  // An unchanged URL is not resolved again: a silent name server would refuse the other fields of the request.
  if (input.notify_url !== undefined && input.notify_url !== access.notifyUrl) {
    await requireNotifyUrl(ctx, input.notify_url, 'body.notify_url')
  }
  const gitBranch = input.git_branch || null
  const isFollowed = sql`${branches.gitBranch} is not distinct from ${gitBranch}`
  const row = await mutate(ctx, async (mutation) => {
    // The project is locked before its branch, as by an action.
    if (input.branch_name !== undefined && !access.isDefault) {
      await renameProject(mutation.tx, project.ref, input.branch_name)
    }
    const [branch] = await mutation.tx
      .update(branches)
      .set({
        ...(input.branch_name !== undefined && { name: input.branch_name }),
        // The pull requests of another git branch are not those for which this branch was created, so they do not remove it.
        ...(input.git_branch !== undefined && {
          gitBranch,
          prNumber: sql`case when ${isFollowed} then ${branches.prNumber} end`,
          forPullRequests: sql`${branches.forPullRequests} and ${isFollowed}`,
        }),
        ...(input.persistent !== undefined && { persistent: input.persistent }),
        // A persistent branch must not stay scheduled for deletion.
        ...(input.persistent && { deletionScheduledAt: null }),
        ...(input.status !== undefined && { status: input.status }),
        ...(input.request_review !== undefined && { reviewRequestedAt: input.request_review ? ctx.now() : null }),
        ...(input.notify_url !== undefined && { notifyUrl: input.notify_url }),
        updatedAt: ctx.now(),
      })
      .where(and(eq(branches.id, access.id), isNull(branches.removedAt)))
      .returning(BRANCH_COLUMNS)
      .catch((error) => rejectTakenName(error, input.branch_name ?? ''))
    if (!branch) throw new ApiError('not_found.branch')
    if (input.notify_url !== undefined) await setNotifyUrl(ctx, mutation, project.organizationId, branch)
    if (Object.keys(input).length > 0) await publishBranchEvent(mutation, project, branch, 'v1.project.branch.updated')
    const fields = Object.keys(input)
    await mutation.trace({ project, action: 'branch.update', detail: { branch: branch.id, fields } })
    return branch
  })
  return toBranch(row, project.status)
}

/** Statuses in which a branch may have no database, which a reset then creates. */
const WITHOUT_DATABASE: readonly ProjectStatus[] = ['INIT_FAILED', 'RESTORE_FAILED']

export async function startAction(
  ctx: Ctx,
  access: BranchAccess,
  kind: Exclude<RunKind, 'create' | 'commit' | 'finish'>,
  version?: string,
) {
  const { project } = access
  if (access.isDefault) throw new ApiError('unprocessable.branch', { detail: 'it is the default branch' })
  const allowedStatuses = kind === 'reset' ? [...ACTIVE, ...WITHOUT_DATABASE] : ACTIVE
  if (kind === 'merge') await requireParentRole(ctx, access)
  else await waitForMerge(ctx, access)
  if (version !== undefined) await requireMigration(ctx, access, kind, version)
  const id = await mutate(ctx, async (mutation) => {
    // The parent is locked first, as in its deletion with its branches.
    requireActiveParent(await lockStatus(mutation, access.parentRef))
    const before = await requireStatus(mutation, project.ref, allowedStatuses)
    if (kind !== 'merge') await requireNoReadingRun(mutation, project.ref)
    const [branch] = await mutation.tx
      .update(branches)
      .set({ ...(kind !== 'merge' && { status: 'RUNNING_MIGRATIONS' as const }), updatedAt: ctx.now() })
      .where(and(eq(branches.id, access.id), isNull(branches.removedAt)))
      .returning(BRANCH_COLUMNS)
    if (!branch) throw new ApiError('not_found.branch')
    const resetFields = kind === 'reset' && { statusBefore: before }
    const runKind = kind === 'push' && (await isUnfinished(mutation, branch)) ? 'finish' : kind
    const runId = await startRun(ctx, mutation, { branch, kind: runKind, migrationVersion: version, ...resetFields })
    if (kind === 'reset') await changeStatus(mutation, project, { before, status: 'RESTORING' })
    await publishBranchEvent(mutation, project, branch, 'v1.project.branch.updated')
    await mutation.trace({ project, action: `branch.${kind}`, detail: { branch: branch.id, run: runId } })
    return runId
  })
  return { workflow_run_id: id, message: 'ok' }
}

const MERGE_MS_MAX = 20_000
const MERGE_POLL_MS = 250

/** Waits for a running merge: clients reset a branch as soon as the parent has its migrations, which may be before the run ends. */
async function waitForMerge({ db }: Ctx, { project: { ref } }: BranchAccess): Promise<void> {
  const until = Date.now() + MERGE_MS_MAX
  while (Date.now() < until && (await isReadByRun(db, ref))) await scheduler.wait(MERGE_POLL_MS)
}

/** Requires a role in the parent: write access to the branch alone is not enough to merge it. */
async function requireParentRole(ctx: Ctx, { parentRef }: BranchAccess): Promise<void> {
  const parent = await findProject(ctx, parentRef)
  requirePermission(parent.role, 'environment:write')
}

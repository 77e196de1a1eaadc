import { and, eq, isNull, not } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import {
  BRANCH_COLUMNS,
  type BranchRow,
  branches,
  gitBranches,
  type ProjectStatus,
} from '../../../model/tables/index.ts'
import type { CommitReport } from '../../../platform/github/repository.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireOrganizationPlan } from '../../account/organizations/plan-features.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { prepareProject } from '../../projects/projects/new-project.ts'
import { lockStatus, requireStatus } from '../../projects/projects/status.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { publishBranchEvent } from '../branches/branch-events.ts'
import { addBranch, ensureDefaultBranch } from '../branches/create-branch.ts'
import { requireActiveParent } from '../branches/parent-project.ts'
import { removeBranchProject } from '../branches/remove-branch.ts'
import { isUnfinished, startRun } from '../branches/runs.ts'
import { type FollowedBranch, type GitBranch, isLeasedBy } from './followed-branch.ts'

/** A preview branch cannot be created or completed; the message is for the author of the pull request. */
export class PreviewRefused extends Error {
  override name = 'PreviewRefused'
}

const gitOf = ({ connection, repository, row }: FollowedBranch, commit: string) => ({
  config: { connection_id: connection.id, repository: repository.name, branch: row.name, commit },
  workdir: connection.workdir,
})

const PENDING: CommitReport = { state: 'pending', description: 'Migrations are being applied' }

/** Records the run in the transaction that starts it. Fails if the lease is lost: the run would not be reported to GitHub. */
async function recordRun(
  { now }: SystemCtx,
  { tx }: Mutation,
  { row }: FollowedBranch,
  run: { commit: string; branchId: string; runId: string },
): Promise<GitBranch> {
  const [updated] = await tx
    .update(gitBranches)
    .set({ ...run, report: PENDING, updatedAt: now() })
    .where(isLeasedBy(row))
    .returning()
  if (!updated) throw new Superseded(`another consumer works on ${row.name}`)
  return updated
}

/** The branch to update; without an id, the default branch, which may not exist yet. */
export interface BranchTarget {
  id?: string | undefined
  projectRef: string
}

/** Starts a run that updates a branch to a commit. */
export const startCommit = (
  ctx: SystemCtx,
  followed: FollowedBranch,
  commit: string,
  { id, projectRef }: BranchTarget,
): Promise<GitBranch> =>
  mutate(ctx, async (mutation) => {
    const { project } = followed
    // The parent is locked first, as in its deletion with its branches.
    const parentStatus = await lockStatus(mutation, project.ref)
    await requireStatus(mutation, projectRef)
    if (id === undefined) await ensureDefaultBranch(ctx, mutation, project)
    const which = id === undefined ? branches.isDefault : eq(branches.id, id)
    const [branch] = await mutation.tx
      .update(branches)
      .set({ status: 'RUNNING_MIGRATIONS', updatedAt: ctx.now() })
      .where(and(eq(branches.parentRef, project.ref), which, isNull(branches.removedAt)))
      .returning(BRANCH_COLUMNS)
    if (!branch) throw new Error(`a branch of ${project.ref} is gone`)
    const kind = (await isUnfinished(mutation, branch)) ? 'finish' : 'commit'
    if (kind === 'finish') requireReadable(parentStatus)
    const runId = await startRun(ctx, mutation, { branch, kind, git: gitOf(followed, commit) })
    const updated = await recordRun(ctx, mutation, followed, { commit, branchId: branch.id, runId })
    await publishBranchEvent(mutation, project, branch, 'v1.project.branch.updated')
    const own = { ...project, ref: projectRef }
    const detail = { branch: branch.id, run: runId, commit }
    await mutation.trace({ project: own, action: 'branch.commit', detail })
    return updated
  })

/** Project statuses that do not change without an action of a person. */
export const STUCK = ['INACTIVE', 'INIT_FAILED', 'PAUSE_FAILED', 'RESTORE_FAILED', 'GOING_DOWN', 'REMOVED', 'UNKNOWN']

/** A run that completes the branch reads the parent's database. */
function requireReadable(status: ProjectStatus | undefined): void {
  if (status && STUCK.includes(status)) throw new PreviewRefused(`The project is ${status}`)
  requireActiveParent(status)
}

/** Creates a preview branch and starts its run. Rejects with PreviewRefused if the connection allows no more of them. */
export async function addPreview(
  ctx: SystemCtx,
  followed: FollowedBranch,
  commit: string,
  pull: number,
): Promise<GitBranch> {
  const { project, row } = followed
  await requireOrganizationPlan(ctx.db, project.organizationId, 'branching')
  try {
    return await insertPreview(ctx, followed, { commit, pull, name: row.name })
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'conflict.branch_name') throw error
    return insertPreview(ctx, followed, { commit, pull, name: `${row.name} #${pull}` })
  }
}

async function insertPreview(
  ctx: SystemCtx,
  followed: FollowedBranch,
  { commit, pull, name }: { commit: string; pull: number; name: string },
): Promise<GitBranch> {
  const { project: parent, row } = followed
  const prepared = await prepareProject(ctx, newPassword())
  return mutate(ctx, async (mutation) => {
    await requireStatus(mutation, parent.ref)
    await requirePreviewAllowed(mutation, followed)
    let updated: GitBranch = row
    await addBranch(ctx, mutation, {
      parent,
      prepared,
      branch: { name, gitBranch: row.name, forPullRequests: true, prNumber: pull },
      async begin(branch) {
        const runId = await startRun(ctx, mutation, { branch, kind: 'create', git: gitOf(followed, commit) })
        updated = await recordRun(ctx, mutation, followed, { commit, branchId: branch.id, runId })
      },
    })
    return updated
  })
}

/** Checks the limit of preview branches. The project is locked, so no other branch is created meanwhile. */
async function requirePreviewAllowed({ tx }: Mutation, { connection, project }: FollowedBranch): Promise<void> {
  const { value } = await readSettings(tx, project.ref, 'branching')
  if (!value.enabled) throw new PreviewRefused('Branching is disabled for the project')
  const isPreview = and(isNull(branches.removedAt), not(branches.isDefault), not(branches.persistent))
  const previews = await tx.$count(branches, and(eq(branches.parentRef, project.ref), isPreview))
  const { branchLimit } = connection
  if (previews >= branchLimit)
    throw new PreviewRefused(`The project has ${previews} of ${branchLimit} preview branches`)
}

/** Removes a preview branch, unless it has become persistent meanwhile. */
export const removePreview = (
  ctx: SystemCtx,
  { project }: FollowedBranch,
  { id, projectRef }: BranchRow,
): Promise<boolean> =>
  mutate(ctx, (mutation) =>
    removeBranchProject(
      ctx,
      mutation,
      { id, project: { ...project, ref: projectRef } },
      and(branches.forPullRequests, not(branches.persistent)),
    ),
  )

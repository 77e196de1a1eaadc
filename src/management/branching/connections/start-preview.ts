import { and, count, eq, isNull, not } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine.ts'
import { newPassword } from '../../../model/secrets/project.ts'
import { branches, gitBranches } from '../../../model/tables/index.ts'
import type { CommitReport } from '../../../platform/github/repository.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireOrganizationPlan } from '../../account/organizations/plan-features.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { prepareProject } from '../../projects/projects/new-project.ts'
import { requireStatus } from '../../projects/projects/status.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { subject, tell } from '../branches/branch-events.ts'
import type { BranchRow } from '../branches/convert.ts'
import { addBranch, ensureDefault } from '../branches/create-branch.ts'
import { remove } from '../branches/remove-branch.ts'
import { startRun } from '../branches/runs.ts'
import { type GitBranch, held } from './git-branch-task.ts'
import type { Followed } from './watch-pull-request.ts'

/** A branch cannot be made for reasons that are no fault, in words for who opened the pull request. */
export class NoRoom extends Error {
  override name = 'NoRoom'
}

const gitOf = ({ connection, repository, row }: Followed, commit: string) => ({
  config: { connection_id: connection.id, repository: repository.name, branch: row.name, commit },
  workdir: connection.workdir,
})

const PENDING: CommitReport = { state: 'pending', description: 'Migrations are being applied' }

/** Commits with the run, and only for who is still the one to look: else nobody would tell GitHub of its end. */
async function noteRun(
  { now }: SystemCtx,
  { tx }: Mutation,
  { row }: Followed,
  run: { commit: string; branchId: string; runId: string },
): Promise<GitBranch> {
  const [noted] = await tx
    .update(gitBranches)
    .set({ ...run, report: PENDING, updatedAt: now() })
    .where(held(row))
    .returning()
  if (!noted) throw new Superseded(`somebody else looks at ${row.name}`)
  return noted
}

/** A branch that there is; without an id the default one, which may not be there yet. */
export interface Present {
  id?: string | undefined
  projectRef: string
}

/** A run that brings a branch to a commit. */
export const startCommit = (
  ctx: SystemCtx,
  followed: Followed,
  commit: string,
  { id, projectRef }: Present,
): Promise<GitBranch> =>
  mutate(ctx, async (mutation) => {
    const { project } = followed
    await requireStatus(mutation, projectRef)
    if (id === undefined) await ensureDefault(ctx, mutation, project)
    const which = id === undefined ? branches.isDefault : eq(branches.id, id)
    const [branch] = await mutation.tx
      .update(branches)
      .set({ status: 'RUNNING_MIGRATIONS', updatedAt: ctx.now() })
      .where(and(eq(branches.parentRef, project.ref), which, isNull(branches.removedAt)))
      .returning()
    if (!branch) throw new Error(`a branch of ${project.ref} is gone`)
    const runId = await startRun(ctx, mutation, { branch, kind: 'commit', git: gitOf(followed, commit) })
    const noted = await noteRun(ctx, mutation, followed, { commit, branchId: branch.id, runId })
    await tell(mutation, project, branch, 'v1.project.branch.updated')
    const own = { ...project, ref: projectRef }
    const detail = { branch: branch.id, run: runId, commit }
    await mutation.trace({ ...subject(own), action: 'branch.commit', detail })
    return noted
  })

/** A branch for pull requests, and the run that fills it. Rejects with NoRoom where the connection allows no more of them. */
export async function addPreview(ctx: SystemCtx, followed: Followed, commit: string, pull: number): Promise<GitBranch> {
  const { project, row } = followed
  await requireOrganizationPlan(ctx.db, project.organizationId, 'branching')
  try {
    return await add(ctx, followed, { commit, pull, name: row.name })
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'conflict.branch_name') throw error
    return add(ctx, followed, { commit, pull, name: `${row.name} #${pull}` })
  }
}

async function add(
  ctx: SystemCtx,
  followed: Followed,
  { commit, pull, name }: { commit: string; pull: number; name: string },
): Promise<GitBranch> {
  const { project: parent, row } = followed
  const fresh = await prepareProject(ctx, newPassword())
  return mutate(ctx, async (mutation) => {
    await requireStatus(mutation, parent.ref)
    await requireRoom(mutation, followed)
    let noted: GitBranch = row
    await addBranch(ctx, mutation, {
      parent,
      fresh,
      branch: { name, gitBranch: row.name, forPullRequests: true, prNumber: pull },
      async begin(branch) {
        const runId = await startRun(ctx, mutation, { branch, kind: 'create', git: gitOf(followed, commit) })
        noted = await noteRun(ctx, mutation, followed, { commit, branchId: branch.id, runId })
      },
    })
    return noted
  })
}

/** The project is locked, so that nobody makes another one meanwhile. */
async function requireRoom({ tx }: Mutation, { connection, project }: Followed): Promise<void> {
  const { value } = await readSettings(tx, project.ref, 'branching')
  if (!value.enabled) throw new NoRoom('Branching is disabled for the project')
  const [row] = await tx
    .select({ previews: count() })
    .from(branches)
    .where(
      and(
        eq(branches.parentRef, project.ref),
        isNull(branches.removedAt),
        not(branches.isDefault),
        not(branches.persistent),
      ),
    )
  const previews = row?.previews ?? 0
  const { branchLimit } = connection
  if (previews >= branchLimit) throw new NoRoom(`The project has ${previews} of ${branchLimit} preview branches`)
}

/** Unless it has become persistent meanwhile. */
export const removePreview = (ctx: SystemCtx, { project }: Followed, { id, projectRef }: BranchRow): Promise<boolean> =>
  mutate(ctx, (mutation) =>
    remove(
      ctx,
      mutation,
      { id, project: { ...project, ref: projectRef } },
      and(branches.forPullRequests, not(branches.persistent)),
    ),
  )

import { and, eq, inArray, isNotNull, isNull, lte, not, or, type SQL, sql } from 'drizzle-orm'
import type { BranchAccess, ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import {
  actionRuns,
  BRANCH_COLUMNS,
  type BranchRow,
  branches,
  organizations,
  projects,
  projectTasks,
  TASK_KINDS,
} from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { describeError } from '../../../platform/http/log.ts'
import { endAssociations, ofProjects } from '../../database/private-link/end-associations.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { changeStatus, lockStatus } from '../../projects/projects/status.ts'
import { cancelTasks, ofProject, startTask, type TaskCtx } from '../../projects/projects/tasks.ts'
import { saveSettings } from '../../projects/settings/read-settings.ts'
import { publishBranchEvent } from './branch-events.ts'
import { endSteps, HAS_OPEN_STEPS } from './runs.ts'

const GRACE_MS = 60 * 60 * 1000
/** Tasks of a branch's project that are canceled when the branch is deleted, in addition to its runs. */
const PROJECT_WORK = TASK_KINDS.filter((kind) => kind !== 'delete' && !kind.startsWith('branch_'))

export async function removeBranch(ctx: Ctx, access: BranchAccess, force: boolean) {
  if (access.isDefault) throw new ApiError('unprocessable.branch', { detail: 'the default branch cannot be deleted' })
  if (access.persistent) throw persistentBranchError()
  await mutate(ctx, async (mutation) => {
    const isRemoved = force
      ? await removeBranchProject(ctx, mutation, access, IS_EPHEMERAL)
      : await scheduleRemoval(ctx, mutation, access)
    if (!isRemoved) throw await removalError(mutation, access)
  })
  return { message: 'ok' }
}

const IS_EPHEMERAL = not(branches.persistent)

/** Creates the error for a branch that was removed or made persistent meanwhile. */
async function removalError({ tx }: Mutation, { id }: BranchAccess): Promise<ApiError> {
  const [branch] = await tx
    .select({ id: branches.id })
    .from(branches)
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
  return branch ? persistentBranchError() : new ApiError('not_found.branch')
}

const persistentBranchError = () =>
  new ApiError('unprocessable.branch', {
    detail: 'a persistent branch cannot be deleted: set persistent to false first',
  })

async function scheduleRemoval(ctx: Ctx, mutation: Mutation, { id, project }: BranchAccess): Promise<boolean> {
  const at = ctx.now()
  const [branch] = await mutation.tx
    .update(branches)
    .set({
      deletionScheduledAt: sql`coalesce(${branches.deletionScheduledAt}, ${new Date(at.getTime() + GRACE_MS)})`,
      updatedAt: at,
    })
    .where(and(eq(branches.id, id), isNull(branches.removedAt), IS_EPHEMERAL))
    .returning(BRANCH_COLUMNS)
  if (!branch) return false
  await publishBranchEvent(mutation, project, branch, 'v1.project.branch.updated')
  await mutation.trace({ project, action: 'branch.delete.schedule', detail: { branch: id } })
  return true
}

type Project = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>
type Removable = Pick<BranchRow, 'id'> & { project: Project }

/**
 * Removes a branch. A task of its project then removes the database and objects. Returns false if the branch is already removed or
 * `condition` does not hold.
 */
export async function removeBranchProject(
  ctx: TaskCtx,
  mutation: Mutation,
  { id, project }: Removable,
  condition?: SQL,
): Promise<boolean> {
  const { ref } = project
  // The project is locked first, as in its deletion by ref.
  const before = await lockStatus(mutation, ref)
  if (!before || !(await removeRow(ctx, mutation, project, and(eq(branches.id, id), condition)))) return false
  await cancelTasks(ctx, mutation, ofProject(ref, PROJECT_WORK))
  await changeStatus(mutation, project, { before, status: 'GOING_DOWN' })
  await startTask(ctx, mutation, { ref, kind: 'delete' })
  await endAssociations(mutation, ofProjects([ref]), ctx.now())
  await mutation.trace({ project, action: 'branch.delete', detail: { branch: id } })
  return true
}

/** Removes the row and the runs of a branch, without its project, and publishes the event. */
async function removeRow(ctx: TaskCtx, mutation: Mutation, project: Project, which: SQL | undefined): Promise<boolean> {
  const [branch] = await mutation.tx
    .update(branches)
    .set({ removedAt: ctx.now() })
    .where(and(which, isNull(branches.removedAt)))
    .returning(BRANCH_COLUMNS)
  if (!branch) return false
  await cancelRuns(ctx, mutation, branch)
  await publishBranchEvent(mutation, project, branch, 'v1.project.branch.removed')
  return true
}

/** Cancels the runs of a branch, including a merge, whose task belongs to the parent and would block it. */
async function cancelRuns(ctx: TaskCtx, mutation: Mutation, { projectRef }: BranchRow): Promise<void> {
  const ofBranch = eq(actionRuns.projectRef, projectRef)
  const tasks = mutation.tx.select({ id: actionRuns.taskId }).from(actionRuns).where(ofBranch)
  await cancelTasks(ctx, mutation, inArray(projectTasks.id, tasks))
  await mutation.tx.execute(endSteps(ctx, and(ofBranch, HAS_OPEN_STEPS), ['EXITED', 'DEAD']))
  await mutation.tx
    .update(actionRuns)
    .set({ files: null, kept: null })
    .where(and(ofBranch, or(isNotNull(actionRuns.files), isNotNull(actionRuns.kept))))
}

export async function restoreBranch(ctx: Ctx, { id, project }: BranchAccess) {
  await mutate(ctx, async (mutation) => {
    const [branch] = await mutation.tx
      .update(branches)
      .set({ deletionScheduledAt: null, updatedAt: ctx.now() })
      .where(and(eq(branches.id, id), isNull(branches.removedAt), sql`${branches.deletionScheduledAt} is not null`))
      .returning(BRANCH_COLUMNS)
    if (!branch) throw new ApiError('unprocessable.branch', { detail: 'it is not scheduled for deletion' })
    await publishBranchEvent(mutation, project, branch, 'v1.project.branch.updated')
    await mutation.trace({ project, action: 'branch.restore', detail: { branch: id } })
  })
  return { message: 'Branch restoration initiated' }
}

/** Disables branching: all branches are removed, persistent ones included; the project itself does not change. */
export async function disableBranching(ctx: Ctx, project: ProjectAccess): Promise<void> {
  if (project.parentRef !== null)
    throw new ApiError('unprocessable.branch', { detail: 'a branch cannot have branches' })
  await changeProject(ctx, project, async (mutation) => {
    await removeAllBranches(ctx, mutation, project)
    const value = { enabled: false }
    await saveSettings(mutation.tx, { ref: project.ref, area: 'branching', value, updatedAt: ctx.now() })
    await mutation.record('branching.disable')
  })
}

/** Removes all branches of a locked project: the project is being deleted, or branching is disabled for it. */
async function removeAllBranches(ctx: TaskCtx, mutation: Mutation, parent: Project): Promise<void> {
  const rows = await mutation.tx
    .select({ id: branches.id, ref: branches.projectRef })
    .from(branches)
    .where(and(eq(branches.parentRef, parent.ref), isNull(branches.removedAt), not(branches.isDefault)))
    .orderBy(branches.id)
  for (const { id, ref } of rows) await removeBranchProject(ctx, mutation, { id, project: { ...parent, ref } })
  await removeRow(ctx, mutation, parent, and(eq(branches.parentRef, parent.ref), branches.isDefault))
}

/** Removes the branches of a project deleted by its ref: its own branch if it is one, otherwise all its branches. */
export async function removeProjectBranches(
  ctx: TaskCtx,
  mutation: Mutation,
  project: Project & Pick<ProjectAccess, 'parentRef'>,
): Promise<void> {
  if (project.parentRef === null) return removeAllBranches(ctx, mutation, project)
  const which = and(eq(branches.projectRef, project.ref), IS_EPHEMERAL)
  if (!(await removeRow(ctx, mutation, project, which))) throw persistentBranchError()
}

const DUE_MAX = 100

/** Removes the branches whose grace period has ended. */
export async function removeDueBranches(ctx: SystemCtx): Promise<void> {
  const isDue = and(lte(branches.deletionScheduledAt, ctx.now()), IS_EPHEMERAL)
  const due = await ctx.db
    .select({
      id: branches.id,
      ref: projects.ref,
      organizationId: organizations.id,
      organizationSlug: organizations.slug,
    })
    .from(branches)
    .innerJoin(projects, eq(projects.ref, branches.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(isNull(branches.removedAt), isDue))
    .orderBy(branches.deletionScheduledAt)
    .limit(DUE_MAX)
  for (const { id, ...project } of due) {
    // The branch may have been restored or made persistent meanwhile.
    await mutate(ctx, (mutation) => removeBranchProject(ctx, mutation, { id, project }, isDue)).catch((error) =>
      // The next round tries again. The other branches do not wait for this one.
      ctx.log.error('branch_not_removed', { project: project.ref, error: describeError(error) }),
    )
  }
}

import { and, eq, inArray, isNull, lte, ne, sql } from 'drizzle-orm'
import type { BranchAccess, ProjectAccess } from '../../auth/access.ts'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { actionRuns, branches, organizations, projects, projectTasks, type TaskKind } from '../../db/schema/index.ts'
import type { Ctx, SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { cancelTasks, ofProject, startTask } from '../projects/tasks.ts'
import { saveSettings } from '../settings/rows.ts'
import type { BranchRow } from './convert.ts'
import { subject, tell } from './events.ts'
import { endSteps, HAS_OPEN_STEPS } from './runs.ts'

const GRACE_MS = 60 * 60 * 1000
/** Work on a branch's project that gives way when the branch is deleted, beside its runs. */
const PROJECT_WORK: readonly TaskKind[] = [
  'create',
  'pause',
  'restore',
  'restart',
  'backup',
  'restore_backup',
  'restore_moment',
  'resize',
  'add_replica',
  'remove_replica',
]

export async function removeBranch(ctx: Ctx, access: BranchAccess, force: boolean) {
  if (access.isDefault) throw new ApiError('unprocessable.branch', { detail: 'the default branch cannot be deleted' })
  if (access.persistent) {
    throw new ApiError('unprocessable.branch', {
      detail: 'a persistent branch cannot be deleted: set persistent to false first',
    })
  }
  await mutate(ctx, (mutation) => (force ? remove(ctx, mutation, access) : scheduleRemoval(ctx, mutation, access)))
  return { message: 'ok' }
}

async function scheduleRemoval(ctx: Ctx, mutation: Mutation, { id, project }: BranchAccess): Promise<void> {
  const at = ctx.now()
  const [branch] = await mutation.tx
    .update(branches)
    .set({
      deletionScheduledAt: sql`coalesce(${branches.deletionScheduledAt}, ${new Date(at.getTime() + GRACE_MS)})`,
      updatedAt: at,
    })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning()
  if (!branch) throw new ApiError('not_found.branch')
  await tell(mutation, project, branch, 'v1.project.branch.updated')
  await mutation.trace({ ...subject(project), action: 'branch.delete.schedule', detail: { branch: id } })
}

type Removable = Pick<BranchRow, 'id'> & { project: Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'> }

/** The branch is gone at once; its database and bytes follow as a task of its project. */
async function remove(ctx: Ctx | SystemCtx, mutation: Mutation, { id, project }: Removable): Promise<void> {
  const { tx } = mutation
  const { ref, organizationId } = project
  const [branch] = await tx
    .update(branches)
    .set({ removedAt: ctx.now() })
    .where(and(eq(branches.id, id), isNull(branches.removedAt)))
    .returning()
  if (!branch) throw new ApiError('not_found.branch')
  await cancelRuns(ctx, mutation, branch)
  await cancelTasks(ctx, mutation, ofProject(ref, PROJECT_WORK))
  await tx.update(projects).set({ status: 'GOING_DOWN', statusReason: null }).where(eq(projects.ref, ref))
  await startTask(ctx, mutation, { ref, kind: 'delete' })
  await tell(mutation, project, branch, 'v1.project.branch.removed')
  await mutation.trace({ organizationId, projectRef: ref, action: 'branch.delete', detail: { branch: id } })
}

/** A merge is work on the parent, which must not wait for it. */
async function cancelRuns(ctx: Ctx | SystemCtx, mutation: Mutation, { projectRef }: BranchRow): Promise<void> {
  const ofBranch = eq(actionRuns.projectRef, projectRef)
  const tasks = mutation.tx.select({ id: actionRuns.taskId }).from(actionRuns).where(ofBranch)
  await cancelTasks(ctx, mutation, inArray(projectTasks.id, tasks))
  await mutation.tx.execute(endSteps(ctx, and(ofBranch, HAS_OPEN_STEPS), ['EXITED', 'DEAD']))
}

export async function restoreBranch(ctx: Ctx, { id, project }: BranchAccess) {
  await mutate(ctx, async (mutation) => {
    const [branch] = await mutation.tx
      .update(branches)
      .set({ deletionScheduledAt: null, updatedAt: ctx.now() })
      .where(and(eq(branches.id, id), isNull(branches.removedAt), sql`${branches.deletionScheduledAt} is not null`))
      .returning()
    if (!branch) throw new ApiError('unprocessable.branch', { detail: 'it is not scheduled for deletion' })
    await tell(mutation, project, branch, 'v1.project.branch.updated')
    await mutation.trace({ ...subject(project), action: 'branch.restore', detail: { branch: id } })
  })
  return { message: 'Branch restoration initiated' }
}

/** All branches go, persistent ones too; the project itself stays as it is. */
export async function disableBranching(ctx: Ctx, project: ProjectAccess): Promise<void> {
  if (project.parentRef !== null) throw new ApiError('unprocessable.branch', { detail: 'a branch has no branches' })
  await mutate(ctx, async (mutation) => {
    const { tx } = mutation
    await removeAll(ctx, mutation, project)
    await tx
      .update(branches)
      .set({ removedAt: ctx.now() })
      .where(and(eq(branches.parentRef, project.ref), isNull(branches.removedAt)))
    const value = { enabled: false }
    await saveSettings(tx, { ref: project.ref, area: 'branching', value, updatedAt: ctx.now() })
    await mutation.trace({ ...subject(project), action: 'branching.disable' })
  })
}

type Parent = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>

/** The branches of a project that is itself on its way out, or has no branches any more. */
async function removeAll(ctx: Ctx, mutation: Mutation, parent: Parent): Promise<void> {
  const rows = await mutation.tx
    .select({ id: branches.id, ref: branches.projectRef })
    .from(branches)
    .where(and(eq(branches.parentRef, parent.ref), isNull(branches.removedAt), ne(branches.projectRef, parent.ref)))
    .orderBy(branches.id)
    .for('update')
  for (const { id, ref } of rows) await remove(ctx, mutation, { id, project: { ...parent, ref } })
}

/** What the deletion of a project, by its ref, means for branches: its own row, or all that were made from it. */
export async function removeWith(ctx: Ctx, mutation: Mutation, project: ProjectAccess): Promise<void> {
  if (project.parentRef === null) return removeAll(ctx, mutation, project)
  const [branch] = await mutation.tx
    .update(branches)
    .set({ removedAt: ctx.now() })
    .where(and(eq(branches.projectRef, project.ref), isNull(branches.removedAt)))
    .returning()
  if (branch) await tell(mutation, project, branch, 'v1.project.branch.removed')
}

const DUE_MAX = 100

/** Deletes the branches whose grace is over. */
export async function removeDueBranches(ctx: SystemCtx): Promise<void> {
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
    .where(and(isNull(branches.removedAt), lte(branches.deletionScheduledAt, ctx.now())))
    .limit(DUE_MAX)
  for (const { id, ...project } of due) {
    await mutate(ctx, async (mutation) => {
      // Restored by now: it stays.
      const [still] = await mutation.tx
        .select({ id: branches.id })
        .from(branches)
        .where(and(eq(branches.id, id), isNull(branches.removedAt), lte(branches.deletionScheduledAt, ctx.now())))
        .for('update')
      if (still) await remove(ctx, mutation, { id, project })
    })
  }
}

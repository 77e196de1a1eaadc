import { and, eq, exists, inArray, isNull, or } from 'drizzle-orm'
import { actionRuns, type ProjectStatus, projects, projectTasks } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { isOpenTask } from '../../projects/projects/tasks.ts'
import type { Reader } from '../../projects/settings/read-settings.ts'

/** Requires an active parent, because operations on a branch read or write the parent's database. */
export const requireActiveParent = (status: ProjectStatus | undefined): ProjectStatus =>
  checkStatus(status, { whose: "the parent's" })

/**
 * Whether a run reads the database of the project: a run of one of its branches, or its own merge. The task of a merge belongs to
 * the parent, so it does not block tasks of the branch.
 */
export async function isReadByRun(db: Reader, ref: string): Promise<boolean> {
  const ofBranches = db
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(eq(projects.parentRef, ref), isNull(projects.removedAt)))
  const ofMerge = db
    .select({ id: actionRuns.id })
    .from(actionRuns)
    .where(and(eq(actionRuns.taskId, projectTasks.id), eq(actionRuns.projectRef, ref)))
  const readingKinds = ['branch_create', 'branch_push', 'branch_reset', 'branch_finish'] as const
  const reading = await db
    .select({ id: projectTasks.id })
    .from(projectTasks)
    .where(
      and(
        isOpenTask,
        or(
          and(inArray(projectTasks.projectRef, ofBranches), inArray(projectTasks.kind, readingKinds)),
          and(eq(projectTasks.kind, 'branch_merge'), exists(ofMerge)),
        ),
      ),
    )
    .limit(1)
  return reading.length > 0
}

/** Requires that no run reads the database of the project. The caller must lock the project, so that no run starts. */
export async function requireNoReadingRun({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<void> {
  if (!(await isReadByRun(tx, ref))) return
  throw new ApiError('conflict.project_status', { detail: 'a run of a branch is still reading it' })
}

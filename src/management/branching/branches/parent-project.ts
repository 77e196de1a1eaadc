import { and, eq, inArray, isNull } from 'drizzle-orm'
import { type ProjectStatus, projects, projectTasks } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { isOpenTask } from '../../projects/projects/tasks.ts'

/** Requires an active parent, because operations on a branch read or write the parent's database. */
export const requireActiveParent = (status: ProjectStatus | undefined): ProjectStatus =>
  checkStatus(status, { whose: "the parent's" })

/** Requires that no run of a branch reads the database of the project. The caller must lock the project, so that no run starts. */
export async function requireNoReadingRun({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<void> {
  const ofBranches = tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(eq(projects.parentRef, ref), isNull(projects.removedAt)))
  const reading = await tx
    .select({ id: projectTasks.id })
    .from(projectTasks)
    .where(
      and(
        inArray(projectTasks.projectRef, ofBranches),
        inArray(projectTasks.kind, ['branch_create', 'branch_push', 'branch_reset', 'branch_finish']),
        isOpenTask,
      ),
    )
    .limit(1)
  if (reading.length === 0) return
  throw new ApiError('conflict.project_status', { detail: 'a run of one of its branches is still reading it' })
}

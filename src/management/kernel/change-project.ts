import type { SystemCtx } from '../../ctx.ts'
import { ApiError } from '../../platform/http/error.ts'
import { clearProjectCaches } from './clear-project-caches.ts'
import { lockProject } from './lock-project.ts'
import { type Mutation, mutate } from './mutate.ts'

interface Project {
  ref: string
  /** The organization in which the caller's role was checked; absent for a change by the installation. */
  organizationId?: string
}

export interface ProjectChange extends Mutation {
  /** Null unless the project is a branch. */
  parentRef: string | null
  /** Writes the audit log entry of the project. `detail` has names and ids, never secret values. */
  record(action: string, detail?: Record<string, unknown>): Promise<void>
}

/**
 * Changes a project. Its changes run one after another, and fail once its removal has begun or it was transferred. They apply to this
 * isolate at once.
 */
export async function changeProject<T>(
  ctx: SystemCtx,
  project: Project,
  work: (change: ProjectChange) => Promise<T>,
): Promise<T> {
  const { ref } = project
  try {
    return await mutate(ctx, async (mutation) => {
      const { organizationId, parentRef } = await lockProject(mutation, ref)
      if (organizationId !== (project.organizationId ?? organizationId)) throw new ApiError('not_found.project')
      const record: ProjectChange['record'] = (action, detail = {}) =>
        mutation.trace({ action, organizationId, projectRef: ref, detail })
      return work({ ...mutation, parentRef, record })
    })
  } finally {
    clearProjectCaches(ref)
  }
}

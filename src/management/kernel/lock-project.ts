import { and, eq, isNull } from 'drizzle-orm'
import { requireNotGoingDown } from '../../access/access.ts'
import { projects } from '../../model/tables/index.ts'
import { ApiError } from '../../platform/http/error.ts'
import type { Mutation } from './mutate.ts'

interface LockedProject {
  organizationId: string
  /** Null unless the project is a branch. */
  parentRef: string | null
}

/** Locks a project, so that changes to it run one after another. Fails once its removal has begun. */
export async function lockProject({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<LockedProject> {
  const [project] = await tx
    .select({ organizationId: projects.organizationId, parentRef: projects.parentRef, status: projects.status })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
    .for('no key update')
  if (!project) throw new ApiError('not_found.project')
  requireNotGoingDown(project)
  return project
}

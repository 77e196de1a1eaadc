import { and, eq, isNull, ne } from 'drizzle-orm'
import type { Mutation } from '../../db/mutate.ts'
import { type ProjectStatus, projects } from '../../db/schema/index.ts'
import { ApiError } from '../../http/error.ts'
import { ACTIVE } from './values.ts'

interface LockedProject {
  organizationId: string
  /** Null of what is no branch. */
  parentRef: string | null
}

/** Changes of what belongs to a project come one after another, and none once its removal has begun. */
export async function lockProject({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<LockedProject> {
  const [project] = await tx
    .select({ organizationId: projects.organizationId, parentRef: projects.parentRef })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt), ne(projects.status, 'GOING_DOWN')))
    .for('no key update')
  if (!project) throw new ApiError('not_found.project')
  return project
}

/** As it is now: the status that the request began with may have changed since. */
export async function requireActive({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<ProjectStatus> {
  const [row] = await tx
    .select({ status: projects.status })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
    .for('no key update')
  if (row && ACTIVE.includes(row.status)) return row.status
  throw new ApiError('conflict.project_status', { detail: `its status is ${row?.status}, not ACTIVE_HEALTHY` })
}

import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import { type ProjectStatus, projects } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { ACTIVE } from './project-states.ts'

/** Locks and reads the current status, which may have changed since the request was authorized. */
export async function lockStatus({ tx }: Pick<Mutation, 'tx'>, ref: string): Promise<ProjectStatus | undefined> {
  const [row] = await tx
    .select({ status: projects.status })
    .from(projects)
    .where(eq(projects.ref, ref))
    .for('no key update')
  return row?.status
}

/** Returns `status`, which must be one of `allowed`. `whose` begins the reason of the error. */
export function checkStatus(
  status: ProjectStatus | undefined,
  { allowed = ACTIVE, whose = 'its' }: { allowed?: readonly ProjectStatus[]; whose?: string } = {},
): ProjectStatus {
  if (status && allowed.includes(status)) return status
  const detail = `${whose} status is ${status}, not ${allowed.join(' or ')}`
  throw new ApiError('conflict.project_status', { detail })
}

/** Locks and returns the status, which must be one of `allowed`. */
export const requireStatus = async (mutation: Mutation, ref: string, allowed = ACTIVE): Promise<ProjectStatus> =>
  checkStatus(await lockStatus(mutation, ref), { allowed })

type Project = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug'>

/** Sets the status of a locked project and publishes the event. */
export async function changeStatus(
  { tx, publish }: Mutation,
  { ref, organizationId: id, organizationSlug: slug }: Project,
  { before, status }: { before: ProjectStatus; status: ProjectStatus },
): Promise<void> {
  await tx.update(projects).set({ status, statusReason: null }).where(eq(projects.ref, ref))
  await publish({
    type: 'v1.project.status.changed',
    organization: { id, slug },
    projectRef: ref,
    fields: { previous_status: before, current_status: status },
  })
}

import { eq } from 'drizzle-orm'
import { projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'

/** Locks the project row against its removal and other deployments until the transaction ends. */
export async function requireNotRemoved(tx: Writer, ref: string): Promise<void> {
  const [project] = await tx
    .select({ status: projects.status })
    .from(projects)
    .where(eq(projects.ref, ref))
    .for('no key update')
  if (!project || project.status === 'GOING_DOWN' || project.status === 'REMOVED') {
    throw new ApiError('conflict.project_status', { detail: 'the project is being removed' })
  }
}

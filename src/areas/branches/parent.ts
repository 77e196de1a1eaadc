import type { ProjectStatus } from '../../db/schema/index.ts'
import { ApiError } from '../../http/error.ts'
import { ACTIVE } from '../projects/values.ts'

/** Its parent is read or written for a branch. */
export function requireActiveParent(status: ProjectStatus | undefined): void {
  if (status && ACTIVE.includes(status)) return
  throw new ApiError('conflict.project_status', { detail: `the parent's status is ${status}, not ACTIVE_HEALTHY` })
}

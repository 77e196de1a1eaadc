import type * as z from 'zod'
import type { BranchRow, ProjectStatus } from '../../../model/tables/index.ts'
import type { Branch, BranchV2 } from './schema.ts'

/** Converts a branch. Fields without a value are omitted, as clients refuse null. */
export const toBranch = (row: BranchRow, projectStatus: ProjectStatus): z.input<typeof Branch> => ({
  id: row.id,
  name: row.name,
  project_ref: row.projectRef,
  parent_project_ref: row.parentRef,
  is_default: row.isDefault,
  ...(row.gitBranch !== null && { git_branch: row.gitBranch }),
  ...(row.prNumber !== null && { pr_number: row.prNumber }),
  persistent: row.persistent,
  status: row.status,
  created_at: row.createdAt.toISOString(),
  updated_at: row.updatedAt.toISOString(),
  ...(row.reviewRequestedAt && { review_requested_at: row.reviewRequestedAt.toISOString() }),
  with_data: row.withData,
  ...(row.notifyUrl !== null && { notify_url: row.notifyUrl }),
  ...(row.deletionScheduledAt && { deletion_scheduled_at: row.deletionScheduledAt.toISOString() }),
  preview_project_status: projectStatus,
})

export const toBranchV2 = (row: BranchRow): z.input<typeof BranchV2> => ({
  data: {
    type: 'branch',
    id: row.id,
    attributes: {
      name: row.name,
      project_ref: row.projectRef,
      parent_project_ref: row.parentRef,
      is_default: row.isDefault,
      persistent: row.persistent,
      with_data: row.withData,
      ...(row.gitBranch !== null && { git_branch: row.gitBranch }),
      ...(row.notifyUrl !== null && { notify_url: row.notifyUrl }),
      created_at: row.createdAt.toISOString(),
      updated_at: row.updatedAt.toISOString(),
    },
  },
})

/** Fields of a branch in events. */
export const toEventFields = ({ projectRef, name, gitBranch, isDefault, status }: BranchRow) => ({
  branch: { ref: projectRef, name, git_branch: gitBranch, is_default: isDefault, status },
})

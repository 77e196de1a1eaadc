import { gitBranches, type gitConnections, type projects } from '../../../model/tables/index.ts'
import type { Repository } from '../../../platform/github/repository.ts'
import { createDueLeases } from '../../kernel/task-leases.ts'

export type GitBranch = typeof gitBranches.$inferSelect

/** A branch of a repository with the project connected to it. */
export interface FollowedBranch {
  row: GitBranch
  connection: typeof gitConnections.$inferSelect
  project: typeof projects.$inferSelect & { organizationSlug: string }
  repository: Repository
}

export const gitBranchLeases = createDueLeases({ table: gitBranches, type: 'git-branch' })
export const { isLeasedBy } = gitBranchLeases

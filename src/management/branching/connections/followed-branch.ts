import { and, eq } from 'drizzle-orm'
import { gitBranches, type gitConnections, type projects } from '../../../model/tables/index.ts'
import type { Repository } from '../../../platform/github/repository.ts'

export type GitBranch = typeof gitBranches.$inferSelect

/** A branch of a repository with the project connected to it. */
export interface FollowedBranch {
  row: GitBranch
  connection: typeof gitConnections.$inferSelect
  project: typeof projects.$inferSelect & { organizationSlug: string }
  repository: Repository
}

export const isLeasedBy = ({ id, claim }: GitBranch) => and(eq(gitBranches.id, id), eq(gitBranches.claim, claim ?? ''))

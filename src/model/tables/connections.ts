import { sql } from 'drizzle-orm'
import { bigint, boolean, index, integer, jsonb, pgTable, text, unique, uuid } from 'drizzle-orm/pg-core'
import type { CommitReport } from '../../platform/github/repository.ts'
import { branches } from './branches.ts'
import { instant, lease, organizations, users } from './identity.ts'
import { ofProject } from './projects.ts'

/** Connections of projects to GitHub repositories. A connected project cannot be transferred, so the organization never changes. */
export const gitConnections = pgTable(
  'git_connections',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    projectRef: ofProject().unique(),
    installationId: bigint('installation_id', { mode: 'number' }).notNull(),
    /** Identifies the repository: its name may change. */
    repositoryId: bigint('repository_id', { mode: 'number' }).notNull(),
    /** `owner/name`, as last reported by GitHub. */
    repositoryName: text('repository_name').notNull(),
    /** Directory in the repository, without leading or trailing slash; `.` for the root. */
    workdir: text().notNull(),
    /** If true, a pull request that changes no file below the workdir gets no branch. */
    changesOnly: boolean('changes_only').notNull(),
    branchLimit: integer('branch_limit').notNull(),
    newBranchPerPr: boolean('new_branch_per_pr').notNull(),
    /** Creator of the connection; null if unknown. */
    userId: uuid('user_id').references(() => users.id, { onDelete: 'set null' }),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    index('git_connections_of_organization').on(t.organizationId, t.projectRef),
    index('git_connections_of_repository').on(t.repositoryId, t.installationId),
    index('git_connections_user').on(t.userId),
  ],
)

/**
 * Git branches that a connection follows. A webhook from GitHub only makes a check of the branch due: the check reads the current
 * state from GitHub, so deliveries may be lost or arrive in any order.
 */
export const gitBranches = pgTable(
  'git_branches',
  {
    id: uuid().primaryKey().defaultRandom(),
    connectionId: uuid('connection_id')
      .notNull()
      .references(() => gitConnections.id, { onDelete: 'cascade' }),
    name: text().notNull(),
    /** Time of the next check of the branch; null if no check is due. */
    dueAt: instant('due_at'),
    ...lease(),
    attempts: integer().notNull().default(0),
    /** Number of requested checks, so that a request that arrives during a check is noticed. */
    asked: integer().notNull().default(0),
    /** The pull request that GitHub last reported. */
    pullRequest: integer('pull_request'),
    /** Commit of the last run. */
    commit: text(),
    branchId: uuid('branch_id').references(() => branches.id),
    runId: uuid('run_id'),
    /** Commit status that has not been sent to GitHub yet. */
    report: jsonb().$type<CommitReport>(),
    lastError: text('last_error'),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    unique('git_branches_once').on(t.connectionId, t.name),
    index('git_branches_due').on(t.dueAt).where(sql`due_at is not null`),
    index('git_branches_run').on(t.runId).where(sql`run_id is not null`),
  ],
)

/** Webhook deliveries accepted from GitHub, stored for as long as GitHub may send them again. */
export const gitDeliveries = pgTable(
  'git_deliveries',
  {
    id: uuid().primaryKey(),
    at: instant('at').notNull(),
  },
  (t) => [index('git_deliveries_by_age').on(t.at)],
)

import { sql } from 'drizzle-orm'
import { bigint, boolean, index, integer, jsonb, pgTable, text, unique, uuid } from 'drizzle-orm/pg-core'
import type { CommitReport } from '../../platform/github/repository.ts'
import { branches } from './branches.ts'
import { instant, organizations, users } from './identity.ts'
import { projects } from './projects.ts'

/** A project that follows a repository at GitHub. It cannot be transferred meanwhile, so its organization stays. */
export const gitConnections = pgTable(
  'git_connections',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref)
      .unique(),
    installationId: bigint('installation_id', { mode: 'number' }).notNull(),
    /** What the repository is known by: its name may change. */
    repositoryId: bigint('repository_id', { mode: 'number' }).notNull(),
    /** `owner/name`, as GitHub last said. */
    repositoryName: text('repository_name').notNull(),
    /** Of the repository, without slashes at its ends; `.` for its root. */
    workdir: text().notNull(),
    /** Pull requests that touch nothing below the workdir get no branch. */
    changesOnly: boolean('changes_only').notNull(),
    branchLimit: integer('branch_limit').notNull(),
    newBranchPerPr: boolean('new_branch_per_pr').notNull(),
    /** Who made it, as far as he is known. */
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
 * A branch at GitHub that a connection follows. What GitHub tells of it only says that it is to be looked at: what is done
 * goes by what it is then, so that the order of deliveries, and a loss of some, comes to the same.
 */
export const gitBranches = pgTable(
  'git_branches',
  {
    id: uuid().primaryKey().defaultRandom(),
    connectionId: uuid('connection_id')
      .notNull()
      .references(() => gitConnections.id, { onDelete: 'cascade' }),
    name: text().notNull(),
    /** When it is to be looked at; null while there is no reason to. */
    dueAt: instant('due_at'),
    leaseUntil: instant('lease_until'),
    /** A new one at each look: who lost the lease can no longer record anything. */
    claim: uuid(),
    attempts: integer().notNull().default(0),
    /** Counts the reasons to look, so that one that came during a look is seen. */
    asked: integer().notNull().default(0),
    /** The pull request that GitHub last told of. */
    pullRequest: integer('pull_request'),
    /** What the last run was about, and whose. */
    commit: text(),
    branchId: uuid('branch_id').references(() => branches.id),
    runId: uuid('run_id'),
    /** Null once GitHub has been told. */
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

/** Deliveries of GitHub's that were taken, for as long as they may come again. */
export const gitDeliveries = pgTable(
  'git_deliveries',
  {
    id: uuid().primaryKey(),
    at: instant('at').notNull(),
  },
  (t) => [index('git_deliveries_by_age').on(t.at)],
)

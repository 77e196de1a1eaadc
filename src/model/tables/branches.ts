import { getTableColumns, sql } from 'drizzle-orm'
import { boolean, index, integer, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { ofProject, projects, projectTasks } from './projects.ts'

export const BRANCH_STATUSES = [
  'CREATING_PROJECT',
  'RUNNING_MIGRATIONS',
  'MIGRATIONS_PASSED',
  'MIGRATIONS_FAILED',
  'FUNCTIONS_DEPLOYED',
  'FUNCTIONS_FAILED',
] as const
export type BranchStatus = (typeof BRANCH_STATUSES)[number]

/** Steps of a run, in the order in which it executes them. */
export const RUN_STEPS = ['clone', 'pull', 'health', 'configure', 'migrate', 'seed', 'deploy'] as const
export type RunStep = (typeof RUN_STEPS)[number]

export const STEP_STATUSES = ['CREATED', 'DEAD', 'EXITED', 'PAUSED', 'REMOVING', 'RESTARTING', 'RUNNING'] as const
export type StepStatus = (typeof STEP_STATUSES)[number]

const RUN_KINDS = ['create', 'push', 'merge', 'reset', 'commit', 'finish'] as const
export type RunKind = (typeof RUN_KINDS)[number]

/** A step of a run. Times are in ISO 8601. */
export interface StepRecord {
  name: RunStep
  status: StepStatus
  created_at: string
  updated_at: string
}

/** A row of the migration history in a project's database. The CLI reads and writes the same table. */
export interface MigrationRow {
  version: string
  name?: string | null
  statements?: string[] | null
  rollback?: string[] | null
  created_by?: string | null
  idempotency_key?: string | null
}

/** The commit of a GitHub repository that a run applies. */
export interface GitConfig {
  connection_id: string
  /** `owner/name` */
  repository: string
  branch: string
  commit: string
}

/** Files of that commit in the connection's workdir. */
export interface CommitFiles {
  migrations: MigrationRow[]
  seed: string | null
}

/** Each branch is a project of its own and has a row here as well. The default branch is the parent project itself. */
export const branches = pgTable(
  'branches',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    parentRef: text('parent_ref')
      .notNull()
      .references(() => projects.ref),
    name: text().notNull(),
    gitBranch: text('git_branch'),
    isDefault: boolean('is_default').notNull().default(false),
    persistent: boolean().notNull().default(false),
    withData: boolean('with_data').notNull().default(false),
    /** Created by a connection for pull requests from `gitBranch`; removed when none of them is open. */
    forPullRequests: boolean('for_pull_requests').notNull().default(false),
    /** Number of the open GitHub pull request from `gitBranch`. */
    prNumber: integer('pr_number'),
    status: text({ enum: BRANCH_STATUSES }).notNull(),
    notifyUrl: text('notify_url'),
    /** The branch's own function secrets, in addition to the parent's: one sealed JSON object of names and values. */
    sealedSecrets: text('sealed_secrets'),
    reviewRequestedAt: instant('review_requested_at'),
    deletionScheduledAt: instant('deletion_scheduled_at'),
    createdAt: instant('created_at').notNull().defaultNow(),
    updatedAt: instant('updated_at').notNull().defaultNow(),
    removedAt: instant('removed_at'),
  },
  (t) => [
    uniqueIndex('branches_name_once').on(t.parentRef, t.name).where(sql`removed_at is null`),
    uniqueIndex('branches_project_once').on(t.projectRef).where(sql`removed_at is null`),
    uniqueIndex('branches_default_once').on(t.parentRef).where(sql`removed_at is null and is_default`),
    index('branches_by_age').on(t.parentRef, t.createdAt, t.id).where(sql`removed_at is null`),
    index('branches_deletion_due')
      .on(t.deletionScheduledAt)
      .where(sql`removed_at is null and deletion_scheduled_at is not null`),
  ],
)

/** Columns of a branch without the secrets, which are large and have a single reader. */
const { sealedSecrets, ...columns } = getTableColumns(branches)
export const BRANCH_COLUMNS = columns
export type BranchRow = Omit<typeof branches.$inferSelect, 'sealedSecrets'>

/** Runs of branches. The task in `taskId` executes the steps. */
export const actionRuns = pgTable(
  'action_runs',
  {
    id: uuid().primaryKey().defaultRandom(),
    branchId: uuid('branch_id')
      .notNull()
      .references(() => branches.id),
    /** The branch's own project, even if the run changes the parent. */
    projectRef: text('project_ref').notNull(),
    parentRef: text('parent_ref').notNull(),
    taskId: uuid('task_id').references(() => projectTasks.id),
    kind: text({ enum: RUN_KINDS }).notNull(),
    /** Target version of a push, merge or reset; null for the newest. */
    migrationVersion: text('migration_version'),
    steps: jsonb().$type<StepRecord[]>().notNull(),
    /** Migrations of the branch, saved while a reset replaces its database. */
    kept: jsonb().$type<MigrationRow[]>(),
    gitConfig: jsonb('git_config').$type<GitConfig>(),
    workdir: text(),
    /** Set by the step `pull`, and cleared when the run ends. */
    files: jsonb().$type<CommitFiles>(),
    checkRunId: integer('check_run_id'),
    createdAt: instant('created_at').notNull().defaultNow(),
    updatedAt: instant('updated_at').notNull().defaultNow(),
  },
  (t) => [
    index('action_runs_of_branch').on(t.projectRef, t.createdAt, t.id),
    index('action_runs_of_parent').on(t.parentRef, t.createdAt, t.id),
    index('action_runs_task').on(t.taskId),
  ],
)

export const actionRunLogs = pgTable(
  'action_run_logs',
  {
    id: uuid().primaryKey().defaultRandom(),
    runId: uuid('run_id')
      .notNull()
      .references(() => actionRuns.id, { onDelete: 'cascade' }),
    step: text({ enum: RUN_STEPS }).notNull(),
    line: text().notNull(),
    at: instant('at').notNull(),
    /** Order of lines that have the same time. */
    number: integer().notNull().generatedAlwaysAsIdentity(),
  },
  (t) => [index('action_run_logs_run').on(t.runId, t.number), index('action_run_logs_by_age').on(t.at)],
)

import { sql } from 'drizzle-orm'
import { boolean, index, integer, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects, projectTasks } from './projects.ts'

export const BRANCH_STATUSES = [
  'CREATING_PROJECT',
  'RUNNING_MIGRATIONS',
  'MIGRATIONS_PASSED',
  'MIGRATIONS_FAILED',
  'FUNCTIONS_DEPLOYED',
  'FUNCTIONS_FAILED',
] as const
export type BranchStatus = (typeof BRANCH_STATUSES)[number]

/** In the order in which a run walks them. */
export const RUN_STEPS = ['clone', 'pull', 'health', 'configure', 'migrate', 'seed', 'deploy'] as const
export type RunStep = (typeof RUN_STEPS)[number]

export const STEP_STATUSES = ['CREATED', 'DEAD', 'EXITED', 'PAUSED', 'REMOVING', 'RESTARTING', 'RUNNING'] as const
export type StepStatus = (typeof STEP_STATUSES)[number]

const RUN_KINDS = ['create', 'push', 'merge', 'reset', 'commit'] as const
export type RunKind = (typeof RUN_KINDS)[number]

/** Times in ISO 8601. */
export interface StepRecord {
  name: RunStep
  status: StepStatus
  created_at: string
  updated_at: string
}

/** One row of the history in a project's database, which clients share with us: the table is the command line's too. */
export interface MigrationRow {
  version: string
  name?: string | null
  statements?: string[] | null
  rollback?: string[] | null
  created_by?: string | null
  idempotency_key?: string | null
}

/** What a run takes from a repository at GitHub. */
export interface GitConfig {
  connection_id: string
  /** `owner/name` */
  repository: string
  branch: string
  commit: string
}

/** What that commit has in the connection's workdir. */
export interface CommitFiles {
  migrations: MigrationRow[]
  seed: string | null
}

/** A branch is a project of its own, with a row here beside; the default branch stands for the parent itself. */
export const branches = pgTable(
  'branches',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    parentRef: text('parent_ref')
      .notNull()
      .references(() => projects.ref),
    name: text().notNull(),
    gitBranch: text('git_branch'),
    isDefault: boolean('is_default').notNull().default(false),
    persistent: boolean().notNull().default(false),
    withData: boolean('with_data').notNull().default(false),
    /** Made by a connection for pull requests from `gitBranch`: it goes when none is open. */
    forPullRequests: boolean('for_pull_requests').notNull().default(false),
    /** At GitHub, of the open pull request from `gitBranch`. */
    prNumber: integer('pr_number'),
    status: text({ enum: BRANCH_STATUSES }).notNull(),
    notifyUrl: text('notify_url'),
    /** Name to value, sealed as one JSON object: what the branch's functions get beside the parent's secrets. */
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

/** What a branch went through; its steps are done by the task of the same row. */
export const actionRuns = pgTable(
  'action_runs',
  {
    id: uuid().primaryKey().defaultRandom(),
    branchId: uuid('branch_id')
      .notNull()
      .references(() => branches.id),
    /** The branch's own project, whatever the run works on. */
    projectRef: text('project_ref').notNull(),
    parentRef: text('parent_ref').notNull(),
    taskId: uuid('task_id').references(() => projectTasks.id),
    kind: text({ enum: RUN_KINDS }).notNull(),
    /** Push and merge go to this version, reset back to it; null for the newest. */
    migrationVersion: text('migration_version'),
    steps: jsonb().$type<StepRecord[]>().notNull(),
    /** Of a reset, while it runs: the branch's migrations, as its database goes away. */
    kept: jsonb().$type<MigrationRow[]>(),
    gitConfig: jsonb('git_config').$type<GitConfig>(),
    workdir: text(),
    /** From `pull` to the end of a run that takes from a repository. */
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
    /** Orders the lines of one moment. */
    number: integer().notNull().generatedAlwaysAsIdentity(),
  },
  (t) => [index('action_run_logs_run').on(t.runId, t.number)],
)

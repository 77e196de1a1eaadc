import { sql } from 'drizzle-orm'
import { type AnyPgColumn, bigint, index, integer, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import type { UpgradePhase } from '../upgrade-phases.ts'
import { accessTokens, instant, lease, oauthGrants, organizations, users } from './identity.ts'
import { INSTANCE_SIZES, PROJECT_STATUSES, type ProjectStatus, REGION_CODES } from './values.ts'

export const TASK_KINDS = [
  'create',
  'pause',
  'restore',
  'restart',
  'delete',
  'branch_create',
  'branch_push',
  'branch_merge',
  'branch_reset',
  'branch_commit',
  'branch_finish',
  'backup',
  'restore_backup',
  'restore_moment',
  'move',
  'resize',
  'add_replica',
  'remove_replica',
  'upgrade',
] as const
export type TaskKind = (typeof TASK_KINDS)[number]
export const TASK_STATES = ['pending', 'running', 'done', 'failed', 'canceled'] as const

/** Storage settings of a project. A row stores those that differ from the defaults. */
export interface StorageConfig {
  /** Maximum size of an object in bytes. A bucket may set a lower limit. */
  fileSizeLimit: number
}

/** The row of a removed project remains, so that its ref is never reused, but the API no longer shows the project. */
export const projects = pgTable(
  'projects',
  {
    ref: text().primaryKey(),
    /** The integer id in some API responses. */
    id: bigint({ mode: 'number' }).notNull().generatedAlwaysAsIdentity(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    /** Parent project of a branch; null for any other project. */
    parentRef: text('parent_ref').references((): AnyPgColumn => projects.ref),
    name: text().notNull(),
    region: text({ enum: REGION_CODES }).notNull(),
    instanceSize: text('instance_size', { enum: ['pico', ...INSTANCE_SIZES] }).notNull(),
    status: text({ enum: PROJECT_STATUSES }).notNull(),
    /** Reason why the status is not healthy, for the operator. */
    statusReason: text('status_reason'),
    postgresVersion: text('postgres_version').notNull().default(''),
    sealedPassword: text('sealed_password').notNull(),
    sealedRunnerPassword: text('sealed_runner_password').notNull(),
    /** Null for a project that is older than JWT secrets, until the secret is first needed. */
    sealedJwtSecret: text('sealed_jwt_secret'),
    /** State of the engine driver, without secrets. */
    engineState: jsonb('engine_state'),
    storageConfig: jsonb('storage_config').$type<Partial<StorageConfig>>().notNull().default({}),
    /** Number of changes to the function secrets. A program that is already running keeps the old secrets. */
    secretsGeneration: integer('secrets_generation').notNull().default(0),
    /** End of the last sweep for bytes that belong to no object. */
    storageSweptAt: instant('storage_swept_at'),
    /** Due time of the next sweep; null once there can be nothing left to find. */
    storageSweepDueAt: instant('storage_sweep_due_at').defaultNow(),
    /** Cursor of a sweep in progress: the last version that it has checked. */
    storageSweepAfter: text('storage_sweep_after'),
    /** Total size of the objects in bytes, as counted by the last sweep; null before the first. */
    storageBytes: bigint('storage_bytes', { mode: 'number' }),
    /** Bytes that a sweep in progress has counted so far. */
    storageBytesCounted: bigint('storage_bytes_counted', { mode: 'number' }).notNull().default(0),
    /** Value of `engine.preparation` when the database was last prepared; empty if it must be prepared again. */
    preparation: text().notNull().default(''),
    /** Earliest start of the next preparation: one hour later while one is running, and after one has failed. */
    preparationDueAt: instant('preparation_due_at').notNull().defaultNow(),
    createdAt: instant('created_at').notNull().defaultNow(),
    removedAt: instant('removed_at'),
  },
  (t) => [
    /** A project that is going down releases its name at once, as clients replace a project by creating one of the same name. */
    uniqueIndex('projects_name_once')
      .on(t.organizationId, t.name)
      .where(sql`removed_at is null and status <> 'GOING_DOWN' and parent_ref is null`),
    index('projects_parent').on(t.parentRef).where(sql`parent_ref is not null and removed_at is null`),
    index('projects_removed').on(t.removedAt).where(sql`removed_at is not null`),
    index('projects_by_name').on(t.organizationId, t.name, t.ref).where(sql`removed_at is null`),
    index('projects_by_age').on(t.organizationId, t.createdAt, t.ref).where(sql`removed_at is null`),
    index('projects_storage_sweep')
      .on(t.storageSweepDueAt)
      .where(sql`removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY')`),
    index('projects_storage_sweep_removed')
      .on(t.storageSweepDueAt)
      .where(sql`removed_at is not null and storage_sweep_due_at is not null`),
    index('projects_preparation')
      .on(t.preparation, t.preparationDueAt)
      .where(sql`removed_at is null and status in ('ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY')`),
    index('projects_name_search').using('gin', t.name.op('gin_trgm_ops')),
  ],
)

/** The project that a row belongs to. */
export const ofProject = () =>
  text('project_ref')
    .notNull()
    .references(() => projects.ref)

/**
 * Tokens with which another user can take a project into their own organization. A project has one at most. It is deleted when it
 * is used or the project is removed, and invalid after its expiry or without the token or grant that created it.
 */
export const projectClaimTokens = pgTable(
  'project_claim_tokens',
  {
    projectRef: ofProject().primaryKey(),
    /** SHA-256 of the token in hex. */
    hash: text().notNull().unique(),
    /** First and last characters of the token, enough to recognize it. */
    alias: text().notNull(),
    createdBy: uuid('created_by')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    /** The personal access token that created the claim token; null if an OAuth application created it. */
    accessTokenId: uuid('access_token_id').references(() => accessTokens.id, { onDelete: 'cascade' }),
    /** Grant of the OAuth application that created the claim token. */
    oauthGrantId: uuid('oauth_grant_id').references(() => oauthGrants.id, { onDelete: 'cascade' }),
    createdAt: instant('created_at').notNull(),
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    index('project_claim_tokens_created_by').on(t.createdBy),
    index('project_claim_tokens_access_token').on(t.accessTokenId),
    index('project_claim_tokens_oauth_grant').on(t.oauthGrantId),
  ],
)

export interface TaskInput {
  /** Identifier of a read replica. */
  replica?: string
  /** Id of an action run. */
  runId?: string
  /** Status of the project before the task, restored if the task has changed nothing. */
  statusBefore?: ProjectStatus
  backupId?: number
  /** Target time of a point-in-time restore, in seconds since 1970. */
  targetUnix?: number
  /** Postgres version that a project is upgraded to. */
  version?: string
  /** Phase in which an upgrade has failed. */
  failedPhase?: UpgradePhase
  /** Source and target host of a move. `isSourceLost` is true if the source host has been lost. */
  from?: string
  to?: string
  isSourceLost?: boolean
  /** New size of a project that is resized. */
  size?: (typeof INSTANCE_SIZES)[number]
}

/** A project has at most one open task, so its transitions never overlap. */
export const projectTasks = pgTable(
  'project_tasks',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    kind: text({ enum: TASK_KINDS }).notNull(),
    /** Parameters of the task, depending on its kind. */
    input: jsonb().$type<TaskInput>().notNull().default({}),
    /** User whose request started the task. The events at its end name this user as the actor. */
    actorUserId: uuid('actor_user_id'),
    state: text({ enum: TASK_STATES }).notNull().default('pending'),
    stepsDone: text('steps_done').array().notNull().default(sql`'{}'`),
    attempts: integer().notNull().default(0),
    /** Earliest time of the next attempt. Each failed attempt postpones it. */
    dueAt: instant('due_at').notNull(),
    ...lease(),
    lastError: text('last_error'),
    createdAt: instant('created_at').notNull().defaultNow(),
    finishedAt: instant('finished_at'),
  },
  (t) => [
    uniqueIndex('project_tasks_one_open').on(t.projectRef).where(sql`state in ('pending', 'running')`),
    index('project_tasks_due').on(t.dueAt).where(sql`state in ('pending', 'running')`),
    // Ended tasks stay: a year of daily backups of a thousand projects makes 365,000.
    index('project_tasks_upgrades').on(t.projectRef, t.createdAt).where(sql`kind = 'upgrade'`),
  ],
)

export const auditLog = pgTable(
  'audit_log',
  {
    id: uuid().primaryKey().defaultRandom(),
    action: text().notNull(),
    actorUserId: uuid('actor_user_id'),
    actorAppId: uuid('actor_app_id'),
    organizationId: uuid('organization_id'),
    projectRef: text('project_ref'),
    /** Names of the changed fields, never secret values. */
    detail: jsonb().$type<Record<string, unknown>>().notNull().default({}),
    requestId: text('request_id').notNull(),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [index('audit_log_organization').on(t.organizationId, t.createdAt), index('audit_log_time').on(t.createdAt)],
)

/** Time of the last heartbeat of the queue, which /health reads, and of the last hourly run of each duty that has one. */
export const heartbeats = pgTable('heartbeats', {
  name: text().primaryKey(),
  at: instant('at').notNull(),
})

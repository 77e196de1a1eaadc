import { sql } from 'drizzle-orm'
import { type AnyPgColumn, bigint, index, integer, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import type { UpgradePhase } from '../upgrade-phases.ts'
import { accessTokens, instant, oauthGrants, organizations, users } from './identity.ts'
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

/** What a project's storage is set to; a row holds what differs from the defaults. */
export interface StorageConfig {
  /** Bytes of one object; buckets may set less. */
  fileSizeLimit: number
}

/** A removed project keeps its row (its ref is never given out again) but no query of the API sees it. */
export const projects = pgTable(
  'projects',
  {
    ref: text().primaryKey(),
    /** The integer id that some replies carry. */
    id: bigint({ mode: 'number' }).notNull().generatedAlwaysAsIdentity(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    /** Of a branch: the project that it was made from. */
    parentRef: text('parent_ref').references((): AnyPgColumn => projects.ref),
    name: text().notNull(),
    region: text({ enum: REGION_CODES }).notNull(),
    instanceSize: text('instance_size', { enum: ['pico', ...INSTANCE_SIZES] }).notNull(),
    status: text({ enum: PROJECT_STATUSES }).notNull(),
    /** Why the status is not healthy, in words for the operator. */
    statusReason: text('status_reason'),
    postgresVersion: text('postgres_version').notNull().default(''),
    sealedPassword: text('sealed_password').notNull(),
    sealedRunnerPassword: text('sealed_runner_password').notNull(),
    /** Null for a project from before there were any, until it is first needed. */
    sealedJwtSecret: text('sealed_jwt_secret'),
    /** What the engine's driver keeps of it; no secrets. */
    engineState: jsonb('engine_state'),
    storageConfig: jsonb('storage_config').$type<Partial<StorageConfig>>().notNull().default({}),
    /** Counts the changes of its functions' secrets: a program that began before one goes on with the old. */
    secretsGeneration: integer('secrets_generation').notNull().default(0),
    /** When its bucket was last searched for bytes that no object points at. */
    storageSweptAt: instant('storage_swept_at'),
    /** When it is to be searched next; null once nothing can be found any more. */
    storageSweepDueAt: instant('storage_sweep_due_at').defaultNow(),
    /** The last version that a search under way looked at. */
    storageSweepAfter: text('storage_sweep_after'),
    /** Bytes of its objects, as the last search of its bucket counted them; null before the first. */
    storageBytes: bigint('storage_bytes', { mode: 'number' }),
    /** What a search under way has counted so far. */
    storageBytesCounted: bigint('storage_bytes_counted', { mode: 'number' }).notNull().default(0),
    /** What `engine.preparation` was when its database was last brought to it; empty where it is to be looked at again. */
    preparation: text().notNull().default(''),
    /** When another preparation is brought to it: in an hour while somebody is at it, and after he has failed. */
    preparationDueAt: instant('preparation_due_at').notNull().defaultNow(),
    createdAt: instant('created_at').notNull().defaultNow(),
    removedAt: instant('removed_at'),
  },
  (t) => [
    /** A project that is going down gives its name free at once, as clients replace projects that way. */
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

/**
 * With it somebody else takes the project into an organization of his. One a project, deleted once it was used or the project goes;
 * it opens nothing after its time, nor without what it was made with.
 */
export const projectClaimTokens = pgTable(
  'project_claim_tokens',
  {
    projectRef: text('project_ref')
      .primaryKey()
      .references(() => projects.ref),
    /** SHA-256 of the token in hex. */
    hash: text().notNull().unique(),
    /** How the token begins and ends, enough to recognize it. */
    alias: text().notNull(),
    createdBy: uuid('created_by')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    /** The personal token that it was made with; null where that was an application's. */
    accessTokenId: uuid('access_token_id').references(() => accessTokens.id, { onDelete: 'cascade' }),
    /** What a user let that application do. */
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
  /** The identifier of a read replica. */
  replica?: string
  /** Of an action run. */
  runId?: string
  /** The project's, to go back to where the work has changed nothing. */
  statusBefore?: ProjectStatus
  backupId?: number
  /** Of a point-in-time restore, in seconds since 1970. */
  targetUnix?: number
  /** Of Postgres, that a project is upgraded to. */
  version?: string
  /** In which an upgrade has failed. */
  failedPhase?: UpgradePhase
  /** Of a move: the hosts, and whether the one that the project is on has been lost. */
  from?: string
  to?: string
  isSourceLost?: boolean
  /** That a project is to have. */
  size?: (typeof INSTANCE_SIZES)[number]
}

/** One open task a project at most: transitions of a project never overlap. */
export const projectTasks = pgTable(
  'project_tasks',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    kind: text({ enum: TASK_KINDS }).notNull(),
    /** What the task works on beside the project, where its kind has such. */
    input: jsonb().$type<TaskInput>().notNull().default({}),
    /** Whose request started it; the events of its end name him. */
    actorUserId: uuid('actor_user_id'),
    state: text({ enum: TASK_STATES }).notNull().default('pending'),
    stepsDone: text('steps_done').array().notNull().default(sql`'{}'`),
    attempts: integer().notNull().default(0),
    /** Not before; moved on at each failed attempt. */
    dueAt: instant('due_at').notNull(),
    leaseUntil: instant('lease_until'),
    /** A new one at each claim: who lost the lease can no longer record anything. */
    claim: uuid(),
    lastError: text('last_error'),
    createdAt: instant('created_at').notNull().defaultNow(),
    finishedAt: instant('finished_at'),
  },
  (t) => [
    uniqueIndex('project_tasks_one_open').on(t.projectRef).where(sql`state in ('pending', 'running')`),
    index('project_tasks_due').on(t.dueAt).where(sql`state in ('pending', 'running')`),
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
    /** Names of what changed, never secret values. */
    detail: jsonb().$type<Record<string, unknown>>().notNull().default({}),
    requestId: text('request_id').notNull(),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [index('audit_log_organization').on(t.organizationId, t.createdAt), index('audit_log_time').on(t.createdAt)],
)

/** When each background path last proved that it works; read by /health. */
export const heartbeats = pgTable('heartbeats', {
  name: text().primaryKey(),
  at: instant('at').notNull(),
})

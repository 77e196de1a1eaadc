import { sql } from 'drizzle-orm'
import { bigint, boolean, index, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { accessTokens, instant, ofUser, organizations, users } from './identity.ts'
import { ofProject } from './projects.ts'

const SETTING_AREAS = [
  'branching',
  'postgres',
  'pooler',
  'readonly',
  'ssl',
  'network',
  'backup_schedule',
  'jit',
  'disk',
  'auth',
  'postgrest',
  'realtime',
  'pgsodium',
  'legacy_api_keys',
] as const
export type SettingArea = (typeof SETTING_AREAS)[number]

/** Settings of a project that differ from the defaults, one row for each area. The schema of `value` is that of the area. */
export const projectSettings = pgTable(
  'project_settings',
  {
    projectRef: ofProject(),
    area: text({ enum: SETTING_AREAS }).notNull(),
    value: jsonb().$type<Record<string, unknown>>().notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.projectRef, t.area] }),
    index('project_settings_read_only').on(t.projectRef).where(sql`area = 'readonly'`),
    index('project_settings_backup_due').on(sql`(value ->> 'due_at')`).where(sql`area = 'backup_schedule'`),
  ],
)

interface Cidr {
  cidr: string
}

export interface JitRole {
  role: string
  /** Epoch seconds. */
  expires_at?: number | undefined
  allowed_networks?: { allowed_cidrs?: Cidr[] | undefined; allowed_cidrs_v6?: Cidr[] | undefined } | undefined
  branches_only?: boolean | undefined
}

/** Database roles that a member may use for a limited time (just-in-time access). */
export const jitGrants = pgTable(
  'jit_grants',
  {
    projectRef: ofProject(),
    userId: ofUser(),
    roles: jsonb().$type<JitRole[]>().notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.projectRef, t.userId] }), index('jit_grants_user').on(t.userId)],
)

/** Temporary login roles that exist in a project's database and must be dropped when they expire. */
export const temporaryLogins = pgTable(
  'temporary_logins',
  {
    role: text().primaryKey(),
    projectRef: ofProject(),
    /** Null for the login role of the CLI. */
    userId: uuid('user_id').references(() => users.id, { onDelete: 'cascade' }),
    /** The access token that is the role's password. The role ends with the token: null means that it must be dropped. */
    tokenId: uuid('token_id').references(() => accessTokens.id, { onDelete: 'set null' }),
    grantedRole: text('granted_role').notNull(),
    readOnly: boolean('read_only').notNull().default(false),
    expiresAt: instant('expires_at').notNull(),
    /** Time of the last failed attempt to end the login. */
    failedAt: instant('failed_at'),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    index('temporary_logins_project').on(t.projectRef, t.userId),
    index('temporary_logins_user').on(t.userId).where(sql`user_id is not null`),
    index('temporary_logins_due').on(t.expiresAt),
    index('temporary_logins_token').on(t.tokenId),
  ],
)

export const SNIPPET_VISIBILITIES = ['user', 'project', 'org', 'public'] as const

/** Saved SQL. A list reads at most one page for each visibility that the caller has, so each visibility has an index for each sort order. */
export const snippets = pgTable(
  'snippets',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    /** Organization of the project. */
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    ownerId: uuid('owner_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    updatedById: uuid('updated_by_id').references(() => users.id, { onDelete: 'set null' }),
    visibility: text({ enum: SNIPPET_VISIBILITIES }).notNull(),
    name: text().notNull(),
    description: text(),
    sql: text().notNull(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    index('snippets_organization_by_age').on(t.organizationId, t.visibility, t.insertedAt, t.id),
    index('snippets_organization_by_name').on(t.organizationId, t.visibility, t.name, t.id),
    index('snippets_project_by_age').on(t.projectRef, t.visibility, t.insertedAt, t.id),
    index('snippets_project_by_name').on(t.projectRef, t.visibility, t.name, t.id),
    index('snippets_owner_by_age').on(t.ownerId, t.visibility, t.insertedAt, t.id),
    index('snippets_owner_by_name').on(t.ownerId, t.visibility, t.name, t.id),
    index('snippets_updated_by').on(t.updatedById),
  ],
)

export const snippetFavorites = pgTable(
  'snippet_favorites',
  {
    snippetId: uuid('snippet_id')
      .notNull()
      .references(() => snippets.id, { onDelete: 'cascade' }),
    userId: ofUser(),
  },
  (t) => [primaryKey({ columns: [t.snippetId, t.userId] }), index('snippet_favorites_user').on(t.userId)],
)

const BACKUP_KINDS = ['scheduled', 'restore_point'] as const
export const BACKUP_STATUSES = ['PENDING', 'COMPLETED', 'FAILED', 'REMOVED', 'ARCHIVED', 'CANCELLED'] as const

export const backups = pgTable(
  'backups',
  {
    /** The integer id in API responses. */
    id: bigint({ mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    projectRef: ofProject(),
    kind: text({ enum: BACKUP_KINDS }).notNull(),
    /** Name of a restore point; null for a scheduled backup. */
    name: text(),
    status: text({ enum: BACKUP_STATUSES }).notNull(),
    statusReason: text('status_reason'),
    insertedAt: instant('inserted_at').notNull(),
    completedAt: instant('completed_at'),
    removedAt: instant('removed_at'),
  },
  (t) => [
    index('backups_by_age').on(t.projectRef, t.insertedAt, t.id),
    index('backups_completed').on(t.insertedAt).where(sql`status = 'COMPLETED'`),
    index('backups_removed').on(t.removedAt).where(sql`removed_at is not null`),
    uniqueIndex('backups_restore_point_once')
      .on(t.projectRef, t.name)
      .where(sql`kind = 'restore_point' and status in ('PENDING', 'COMPLETED')`),
  ],
)

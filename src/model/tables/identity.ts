import { sql } from 'drizzle-orm'
import {
  type AnyPgColumn,
  boolean,
  check,
  index,
  integer,
  pgTable,
  text,
  timestamp,
  unique,
  uuid,
} from 'drizzle-orm/pg-core'
import { PLANS } from '../../config.ts'
import { ROLES } from '../roles.ts'
import type { Scope } from '../scopes.ts'
import { type GrantType, RELEASE_CHANNELS } from './values.ts'

/** Milliseconds, so that a value read as a JavaScript date and sent back as a cursor compares equal. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: 'date' })

export const users = pgTable(
  'users',
  {
    id: uuid().primaryKey().defaultRandom(),
    /** The integer id that some replies carry. */
    number: integer().notNull().generatedAlwaysAsIdentity(),
    username: text().notNull().unique(),
    primaryEmail: text('primary_email').notNull().unique(),
    avatarUrl: text('avatar_url'),
    mfaEnabled: boolean('mfa_enabled').notNull().default(false),
    /** Since when the operator refuses every call with a token of the user. */
    disabledAt: instant('disabled_at'),
    createdAt: instant('created_at').notNull().defaultNow(),
  },
  (t) => [index('users_any_case_email').on(sql`lower(${t.primaryEmail})`)],
)

export const organizations = pgTable('organizations', {
  id: uuid().primaryKey().defaultRandom(),
  slug: text().notNull().unique(),
  name: text().notNull(),
  plan: text({ enum: PLANS }).notNull(),
  optInTags: text('opt_in_tags').array().notNull().default(sql`'{}'`),
  allowedReleaseChannels: text('allowed_release_channels', { enum: RELEASE_CHANNELS })
    .array()
    .notNull()
    .default(sql`'{ga,preview}'`),
  /** Kept by a trigger on projects, so that a list of 100,000 projects need not be counted to be paged. */
  projectCount: integer('project_count').notNull().default(0),
  /** Since when the operator refuses every call about the organization and its projects. */
  disabledAt: instant('disabled_at'),
  /** A removed organization keeps its row for the refs of its projects, without members, tokens or endpoints. */
  removedAt: instant('removed_at'),
  createdAt: instant('created_at').notNull().defaultNow(),
})

/** A row without project_ref is a role in the whole organization; with one, in that project alone. */
export const memberRoles = pgTable(
  'member_roles',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id, { onDelete: 'cascade' }),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    role: text({ enum: ROLES }).notNull(),
    projectRef: text('project_ref'),
    createdAt: instant('created_at').notNull().defaultNow(),
  },
  (t) => [
    unique('member_roles_once').on(t.organizationId, t.userId, t.projectRef).nullsNotDistinct(),
    index('member_roles_user').on(t.userId),
  ],
)

/** Open ones alone: who accepts or cancels an invitation deletes it. */
export const invitations = pgTable(
  'invitations',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id, { onDelete: 'cascade' }),
    /** In lower case. */
    email: text().notNull(),
    role: text({ enum: ROLES }).notNull(),
    /** Null for the whole organization. */
    projectRefs: text('project_refs').array(),
    invitedBy: uuid('invited_by').references(() => users.id, { onDelete: 'set null' }),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    unique('invitations_once').on(t.organizationId, t.email),
    index('invitations_email').on(t.email),
    index('invitations_invited_by').on(t.invitedBy),
  ],
)

/** Who publishes an application is its organization; others approve it for themselves. */
export const oauthApps = pgTable('oauth_apps', {
  id: uuid().primaryKey().defaultRandom(),
  organizationId: uuid('organization_id')
    .notNull()
    .references(() => organizations.id, { onDelete: 'cascade' }),
  name: text().notNull(),
  /** SHA-256; null for one that cannot keep a secret (RFC 6749, 2.1: public). */
  secretHash: text('secret_hash'),
  redirectUris: text('redirect_uris').array().notNull().default(sql`'{}'`),
  /** The most that it may ask for. */
  scopes: text().array().$type<Scope[]>().notNull().default(sql`'{}'`),
  grantTypes: text('grant_types')
    .array()
    .$type<GrantType[]>()
    .notNull()
    .default(sql`'{authorization_code,refresh_token}'`),
  createdAt: instant('created_at').notNull().defaultNow(),
})

/**
 * Personal tokens and OAuth tokens alike; only the SHA-256 of the token is kept.
 * A null scopes column means all that the user may do; a null organization_id, all the user's organizations.
 */
export const accessTokens = pgTable(
  'access_tokens',
  {
    id: uuid().primaryKey().defaultRandom(),
    hash: text().notNull().unique(),
    name: text().notNull(),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    oauthAppId: uuid('oauth_app_id').references(() => oauthApps.id, { onDelete: 'cascade' }),
    organizationId: uuid('organization_id').references(() => organizations.id, { onDelete: 'cascade' }),
    /** What a user approved, which issued it; it ends with that. */
    oauthGrantId: uuid('oauth_grant_id').references((): AnyPgColumn => oauthGrants.id, { onDelete: 'cascade' }),
    scopes: text().array().$type<Scope[]>(),
    createdAt: instant('created_at').notNull().defaultNow(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
  },
  (t) => [
    index('access_tokens_user').on(t.userId),
    index('access_tokens_oauth_grant').on(t.oauthGrantId).where(sql`oauth_grant_id is not null`),
    index('access_tokens_oauth_expiry').on(t.expiresAt).where(sql`oauth_grant_id is not null`),
    check('access_tokens_oauth_scopes', sql`${t.oauthAppId} is null or ${t.scopes} is not null`),
  ],
)

/**
 * What a user let an application do in one of his organizations: first a code, then one refresh token after the other.
 * Deleted when it is revoked, and once neither would be taken any more.
 */
export const oauthGrants = pgTable(
  'oauth_grants',
  {
    id: uuid().primaryKey().defaultRandom(),
    appId: uuid('app_id')
      .notNull()
      .references(() => oauthApps.id, { onDelete: 'cascade' }),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id, { onDelete: 'cascade' }),
    /** The personal token by which it was approved. */
    approvedBy: uuid('approved_by')
      .notNull()
      .references(() => accessTokens.id, { onDelete: 'cascade' }),
    scopes: text().array().$type<Scope[]>().notNull(),
    redirectUri: text('redirect_uri').notNull(),
    /** Null where the application was sent an access token in place of a code. */
    codeHash: text('code_hash').unique(),
    /** RFC 7636. */
    codeChallenge: text('code_challenge'),
    codeChallengeMethod: text('code_challenge_method', { enum: ['plain', 'S256'] }),
    codeUsedAt: instant('code_used_at'),
    /** Of the half that all its refresh tokens have in common, by which one that was replaced is known. */
    refreshFamilyHash: text('refresh_family_hash').unique(),
    /** Of the one that is taken. */
    refreshHash: text('refresh_hash'),
    createdAt: instant('created_at').notNull(),
    /** Of the code, then of the refresh token. */
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    index('oauth_grants_of_user').on(t.appId, t.userId, t.organizationId),
    index('oauth_grants_approved_by').on(t.approvedBy),
    index('oauth_grants_expiry').on(t.expiresAt),
  ],
)

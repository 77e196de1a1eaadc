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

/** A timestamp in milliseconds, so that a value that is read as a JavaScript date and sent back as a cursor compares equal. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3, mode: 'date' })

/** Columns of rows that one holder at a time works on. */
export const lease = () => ({
  leaseUntil: instant('lease_until'),
  /** Fencing token, new at each claim: a holder that has lost its lease can no longer record anything. */
  claim: uuid(),
})

/** The user that a row belongs to and ends with. */
export const ofUser = () =>
  uuid('user_id')
    .notNull()
    .references(() => users.id, { onDelete: 'cascade' })

/** The organization that a row belongs to and ends with. */
export const ofOrganization = () =>
  uuid('organization_id')
    .notNull()
    .references(() => organizations.id, { onDelete: 'cascade' })

export const users = pgTable(
  'users',
  {
    id: uuid().primaryKey().defaultRandom(),
    /** The integer id in some API responses. */
    number: integer().notNull().generatedAlwaysAsIdentity(),
    username: text().notNull().unique(),
    primaryEmail: text('primary_email').notNull().unique(),
    avatarUrl: text('avatar_url'),
    mfaEnabled: boolean('mfa_enabled').notNull().default(false),
    /** Time at which the operator disabled the user. All calls with the user's tokens are refused. */
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
    .default(sql`'{ga}'`),
  /** Maintained by a trigger on projects, as counting 100,000 projects for each page of a list would be slow. */
  projectCount: integer('project_count').notNull().default(0),
  /** Time at which the operator disabled the organization. All calls about it and its projects, and of its applications, are refused. */
  disabledAt: instant('disabled_at'),
  /** A removed organization keeps its row for the refs of its projects, without members, tokens or endpoints. */
  removedAt: instant('removed_at'),
  createdAt: instant('created_at').notNull().defaultNow(),
})

/** Roles of members. A row without project_ref is a role in the whole organization; otherwise it is a role in that project only. */
export const memberRoles = pgTable(
  'member_roles',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: ofOrganization(),
    userId: ofUser(),
    role: text({ enum: ROLES }).notNull(),
    projectRef: text('project_ref'),
    createdAt: instant('created_at').notNull().defaultNow(),
  },
  (t) => [
    unique('member_roles_once').on(t.organizationId, t.userId, t.projectRef).nullsNotDistinct(),
    index('member_roles_user').on(t.userId),
  ],
)

/** Open invitations. Accepting or canceling an invitation deletes its row. */
export const invitations = pgTable(
  'invitations',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: ofOrganization(),
    /** Email address in lower case. */
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

/** OAuth applications. The organization is the publisher; any user can approve an application for their own organizations. */
export const oauthApps = pgTable(
  'oauth_apps',
  {
    id: uuid().primaryKey().defaultRandom(),
    organizationId: ofOrganization(),
    name: text().notNull(),
    /** SHA-256 of the client secret; null for a public client (RFC 6749, 2.1). */
    secretHash: text('secret_hash'),
    redirectUris: text('redirect_uris').array().notNull().default(sql`'{}'`),
    /** Scopes that the application may request. */
    scopes: text().array().$type<Scope[]>().notNull().default(sql`'{}'`),
    grantTypes: text('grant_types')
      .array()
      .$type<GrantType[]>()
      .notNull()
      .default(sql`'{authorization_code,refresh_token}'`),
    createdAt: instant('created_at').notNull().defaultNow(),
  },
  (t) => [index('oauth_apps_organization').on(t.organizationId)],
)

/**
 * Personal and OAuth access tokens. Only the SHA-256 of a token is stored.
 * Null scopes mean all scopes; a null organization_id means all organizations of the user.
 */
export const accessTokens = pgTable(
  'access_tokens',
  {
    id: uuid().primaryKey().defaultRandom(),
    hash: text().notNull().unique(),
    name: text().notNull(),
    userId: ofUser(),
    oauthAppId: uuid('oauth_app_id').references(() => oauthApps.id, { onDelete: 'cascade' }),
    organizationId: uuid('organization_id').references(() => organizations.id, { onDelete: 'cascade' }),
    /** The grant that issued the token. The token ends with the grant. */
    oauthGrantId: uuid('oauth_grant_id').references((): AnyPgColumn => oauthGrants.id, { onDelete: 'cascade' }),
    scopes: text().array().$type<Scope[]>(),
    createdAt: instant('created_at').notNull().defaultNow(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
  },
  (t) => [
    index('access_tokens_user').on(t.userId),
    index('access_tokens_oauth_app').on(t.oauthAppId).where(sql`oauth_app_id is not null`),
    index('access_tokens_organization').on(t.organizationId).where(sql`organization_id is not null`),
    index('access_tokens_oauth_grant').on(t.oauthGrantId).where(sql`oauth_grant_id is not null`),
    index('access_tokens_oauth_expiry').on(t.expiresAt).where(sql`oauth_grant_id is not null`),
    check('access_tokens_oauth_scopes', sql`${t.oauthAppId} is null or ${t.scopes} is not null`),
  ],
)

/**
 * A user's approval of an application in one organization. It holds an authorization code first, then the current refresh token.
 * Deleted when it is revoked, and when neither the code nor the refresh token is valid any more.
 */
export const oauthGrants = pgTable(
  'oauth_grants',
  {
    id: uuid().primaryKey().defaultRandom(),
    appId: uuid('app_id')
      .notNull()
      .references(() => oauthApps.id, { onDelete: 'cascade' }),
    userId: ofUser(),
    organizationId: ofOrganization(),
    /** The personal access token with which the user approved. */
    approvedBy: uuid('approved_by')
      .notNull()
      .references(() => accessTokens.id, { onDelete: 'cascade' }),
    scopes: text().array().$type<Scope[]>().notNull(),
    redirectUri: text('redirect_uri').notNull(),
    /** Null if the application received an access token instead of a code (implicit grant). */
    codeHash: text('code_hash').unique(),
    /** PKCE challenge (RFC 7636). */
    codeChallenge: text('code_challenge'),
    codeChallengeMethod: text('code_challenge_method', { enum: ['plain', 'S256'] }),
    codeUsedAt: instant('code_used_at'),
    /** Hash of the half that all refresh tokens of the grant share, which detects the reuse of a replaced token. */
    refreshFamilyHash: text('refresh_family_hash').unique(),
    /** Hash of the current refresh token. */
    refreshHash: text('refresh_hash'),
    /** Hash of the refresh token that the current one replaced at `refreshed_at`. */
    previousRefreshHash: text('previous_refresh_hash'),
    refreshedAt: instant('refreshed_at'),
    createdAt: instant('created_at').notNull(),
    /** Expiry of the code, later of the refresh token. */
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [
    index('oauth_grants_of_user').on(t.appId, t.userId, t.organizationId),
    index('oauth_grants_user').on(t.userId),
    index('oauth_grants_organization').on(t.organizationId),
    index('oauth_grants_approved_by').on(t.approvedBy),
    index('oauth_grants_expiry').on(t.expiresAt),
  ],
)

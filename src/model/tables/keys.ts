import { sql } from 'drizzle-orm'
import { boolean, index, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { SIGNING_ALGORITHMS } from '../../platform/jwt/jwk.ts'
import { instant } from './identity.ts'
import { ofProject } from './projects.ts'

export const API_KEY_TYPES = ['publishable', 'secret'] as const

/** API keys of a project's services. Legacy keys are derived from the JWT secret and are not stored. */
export const apiKeys = pgTable(
  'api_keys',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    type: text({ enum: API_KEY_TYPES }).notNull(),
    name: text().notNull(),
    description: text(),
    /** First characters of the key, enough to recognize it. */
    prefix: text().notNull(),
    /** SHA-256 of the key in base64url, by which a key is looked up. */
    hash: text().notNull(),
    sealedKey: text('sealed_key').notNull(),
    /** Claims of the JWT that stands for the key. */
    secretJwtTemplate: jsonb('secret_jwt_template').$type<Record<string, unknown>>(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    /** Set on deletion. The row remains to record the reason. */
    deletedAt: instant('deleted_at'),
    wasCompromised: boolean('was_compromised'),
    deletionReason: text('deletion_reason'),
  },
  (t) => [
    index('api_keys_project').on(t.projectRef),
    uniqueIndex('api_keys_hash_once').on(t.hash),
    uniqueIndex('api_keys_name_once').on(t.projectRef, t.type, t.name).where(sql`deleted_at is null`),
  ],
)

export const SIGNING_KEY_STATUSES = ['in_use', 'previously_used', 'revoked', 'standby'] as const

export const signingKeys = pgTable(
  'signing_keys',
  {
    /** The `kid` of the tokens that the key signs. Several projects may hold the same key. */
    id: uuid().notNull().defaultRandom(),
    projectRef: ofProject(),
    algorithm: text({ enum: SIGNING_ALGORITHMS }).notNull(),
    status: text({ enum: SIGNING_KEY_STATUSES }).notNull(),
    /** True for the project's JWT secret, whose JWK is not stored here. */
    isLegacy: boolean('is_legacy').notNull().default(false),
    sealedPrivateJwk: text('sealed_private_jwk'),
    /** Null for a symmetric key. */
    publicJwk: jsonb('public_jwk').$type<Record<string, unknown>>(),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    revokedAt: instant('revoked_at'),
  },
  (t) => [
    primaryKey({ columns: [t.projectRef, t.id] }),
    uniqueIndex('signing_keys_one_in_use').on(t.projectRef).where(sql`status = 'in_use'`),
    uniqueIndex('signing_keys_one_standby').on(t.projectRef).where(sql`status = 'standby'`),
    uniqueIndex('signing_keys_one_legacy').on(t.projectRef).where(sql`is_legacy`),
  ],
)

/** Issuers whose tokens the project's services accept in addition to the project's own. */
export const thirdPartyAuths = pgTable(
  'third_party_auths',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    type: text().notNull(),
    oidcIssuerUrl: text('oidc_issuer_url'),
    jwksUrl: text('jwks_url'),
    customJwks: jsonb('custom_jwks'),
    resolvedJwks: jsonb('resolved_jwks'),
    /** Required `iss` claim of the tokens; null if it is not known. */
    issuer: text(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    resolvedAt: instant('resolved_at'),
    /** Time of the next fetch of the keys; null if they are configured and not fetched. */
    refreshAt: instant('refresh_at'),
    /** Reason why the last fetch of the keys failed, for the operator. */
    refreshError: text('refresh_error'),
  },
  (t) => [
    index('third_party_auths_project').on(t.projectRef, t.insertedAt),
    index('third_party_auths_refresh')
      .on(sql`(refresh_error is not null)`, t.refreshAt)
      .where(sql`refresh_at is not null`),
  ],
)

import { sql } from 'drizzle-orm'
import { boolean, index, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { SIGNING_ALGORITHMS } from '../../platform/jwt/jwk.ts'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

export const API_KEY_TYPES = ['publishable', 'secret'] as const

/** Keys to a project's own services; the legacy ones are made from its JWT secret and stored nowhere. */
export const apiKeys = pgTable(
  'api_keys',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    type: text({ enum: API_KEY_TYPES }).notNull(),
    name: text().notNull(),
    description: text(),
    /** What the key begins with, enough to recognize it. */
    prefix: text().notNull(),
    /** SHA-256 of the key in base64url: by it a key that is presented is found. */
    hash: text().notNull(),
    sealedKey: text('sealed_key').notNull(),
    /** Claims of whom the key stands for. */
    secretJwtTemplate: jsonb('secret_jwt_template').$type<Record<string, unknown>>(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    /** A deleted key opens nothing; its row says why it went. */
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
    /** The `kid` of the tokens that it signs; several projects may hold one key. */
    id: uuid().notNull().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    algorithm: text({ enum: SIGNING_ALGORITHMS }).notNull(),
    status: text({ enum: SIGNING_KEY_STATUSES }).notNull(),
    /** The project's JWT secret itself, which has no JWK of its own here. */
    isLegacy: boolean('is_legacy').notNull().default(false),
    sealedPrivateJwk: text('sealed_private_jwk'),
    /** Null where the key is symmetric. */
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

/** Issuers whose tokens the project's services take beside its own. */
export const thirdPartyAuths = pgTable(
  'third_party_auths',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    type: text().notNull(),
    oidcIssuerUrl: text('oidc_issuer_url'),
    jwksUrl: text('jwks_url'),
    customJwks: jsonb('custom_jwks'),
    resolvedJwks: jsonb('resolved_jwks'),
    /** What the tokens must say in `iss`; null where that is not known. */
    issuer: text(),
    insertedAt: instant('inserted_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    resolvedAt: instant('resolved_at'),
    /** When the keys are fetched again; null where they are given. */
    refreshAt: instant('refresh_at'),
    /** Why they could not be fetched the last time, in words for the operator. */
    refreshError: text('refresh_error'),
  },
  (t) => [
    index('third_party_auths_project').on(t.projectRef, t.insertedAt),
    index('third_party_auths_refresh')
      .on(sql`(refresh_error is not null)`, t.refreshAt)
      .where(sql`refresh_at is not null`),
  ],
)

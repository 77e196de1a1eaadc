import { index, jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import type { Jwk } from '../../platform/jwt/jwk.ts'
import { instant, ofOrganization } from './identity.ts'

/** Keys that sign the installation's ID tokens. The newest key signs. There are several only if two were created concurrently. */
export const oauthSigningKeys = pgTable('oauth_signing_keys', {
  /** The `kid` of the ID tokens. */
  id: uuid().primaryKey(),
  publicJwk: jsonb('public_jwk').$type<Record<string, unknown>>().notNull(),
  sealedPrivateJwk: text('sealed_private_jwk').notNull(),
  createdAt: instant('created_at').notNull(),
})

/** Identity providers whose assertions about members an organization trusts. */
export const assertionIssuers = pgTable(
  'assertion_issuers',
  {
    organizationId: ofOrganization().primaryKey(),
    /** Required `iss` claim of assertions. Not unique: each organization verifies with its own keys only. */
    issuer: text().notNull(),
    /** Null if the keys were configured or are found through the issuer's discovery document. */
    jwksUrl: text('jwks_url'),
    jwks: jsonb().$type<{ keys: Jwk[] }>().notNull(),
    /** Null if the keys were configured. */
    fetchedAt: instant('fetched_at'),
    /** Time of the last attempt to fetch the keys. */
    triedAt: instant('tried_at'),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [index('assertion_issuers_issuer').on(t.issuer)],
)

/** Assertions that were used: each is accepted once. A row is deleted after the assertion has expired. */
export const usedAssertions = pgTable(
  'used_assertions',
  {
    /** SHA-256 of issuer and `jti`. */
    id: text().primaryKey(),
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [index('used_assertions_expiry').on(t.expiresAt)],
)

import { index, jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import type { Jwk } from '../../platform/jwt/jwk.ts'
import { instant, organizations } from './identity.ts'

/** The installation's own keys for ID tokens. The newest signs; there are several only where two were made at the same moment. */
export const oauthSigningKeys = pgTable('oauth_signing_keys', {
  /** The `kid`. */
  id: uuid().primaryKey(),
  publicJwk: jsonb('public_jwk').$type<Record<string, unknown>>().notNull(),
  sealedPrivateJwk: text('sealed_private_jwk').notNull(),
  createdAt: instant('created_at').notNull(),
})

/** The identity provider whose assertions about its members an organization trusts. */
export const assertionIssuers = pgTable(
  'assertion_issuers',
  {
    organizationId: uuid('organization_id')
      .primaryKey()
      .references(() => organizations.id, { onDelete: 'cascade' }),
    /** What assertions must say in `iss`. Others may name the same one: only an organization's own keys count for it. */
    issuer: text().notNull(),
    /** Null where the keys are found by the issuer's discovery document, or were given. */
    jwksUrl: text('jwks_url'),
    jwks: jsonb().$type<{ keys: Jwk[] }>().notNull(),
    /** Null where the keys were given. */
    fetchedAt: instant('fetched_at'),
    /** The last attempt to fetch them again. */
    triedAt: instant('tried_at'),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [index('assertion_issuers_issuer').on(t.issuer)],
)

/** Each assertion is accepted once. Deleted after it has expired. */
export const usedAssertions = pgTable(
  'used_assertions',
  {
    /** SHA-256 of issuer and `jti`. */
    id: text().primaryKey(),
    expiresAt: instant('expires_at').notNull(),
  },
  (t) => [index('used_assertions_expiry').on(t.expiresAt)],
)

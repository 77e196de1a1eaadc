import { jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'

/** The installation's own keys for ID tokens. The newest signs; there are several only where two were made at the same moment. */
export const oauthSigningKeys = pgTable('oauth_signing_keys', {
  /** The `kid`. */
  id: uuid().primaryKey(),
  publicJwk: jsonb('public_jwk').$type<Record<string, unknown>>().notNull(),
  sealedPrivateJwk: text('sealed_private_jwk').notNull(),
  createdAt: instant('created_at').notNull(),
})

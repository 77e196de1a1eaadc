import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { REGION_CODES } from './values.ts'

const HOST_STATES = ['active', 'draining'] as const

/** Database hosts beside, or in place of, the one of the settings, which is called `local`. */
export const hosts = pgTable('hosts', {
  /** Projects name it in their `engine_state`. */
  name: text().primaryKey(),
  /** Of its control API and SQL over HTTP. */
  url: text().notNull(),
  /** The secret that it knows the control plane by. */
  sealedKey: text('sealed_key').notNull(),
  /** Where clients reach its projects. */
  databaseHost: text('database_host').notNull(),
  databasePort: integer('database_port').notNull(),
  /** Each project answers at `db.{ref}.{domain}` too. */
  databaseDomain: text('database_domain'),
  region: text({ enum: REGION_CODES }).notNull(),
  /** A draining host takes no new projects. */
  state: text({ enum: HOST_STATES }).notNull().default('active'),
  addedAt: instant('added_at').notNull(),
})

import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { REGION_CODES } from './values.ts'

const HOST_STATES = ['active', 'draining'] as const

/** Database hosts in addition to, or instead of, the host of the settings, whose name is `local`. */
export const hosts = pgTable('hosts', {
  /** Stored in the `engine_state` of the host's projects. */
  name: text().primaryKey(),
  /** URL of the host's control API and of its SQL over HTTP. */
  url: text().notNull(),
  /** Secret by which the control plane authenticates to the host. */
  sealedKey: text('sealed_key').notNull(),
  /** Host name at which clients reach the host's databases. */
  databaseHost: text('database_host').notNull(),
  databasePort: integer('database_port').notNull(),
  /** If set, each project is also reachable at `db.{ref}.{domain}`. */
  databaseDomain: text('database_domain'),
  region: text({ enum: REGION_CODES }).notNull(),
  /** A draining host takes no new projects. */
  state: text({ enum: HOST_STATES }).notNull().default('active'),
  addedAt: instant('added_at').notNull(),
})

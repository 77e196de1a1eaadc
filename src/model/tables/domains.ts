import { sql } from 'drizzle-orm'
import { pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

/** Names below PROJECT_DOMAIN that projects have beside their refs. */
export const vanitySubdomains = pgTable('vanity_subdomains', {
  projectRef: text('project_ref')
    .primaryKey()
    .references(() => projects.ref),
  /** One label, in lower case. */
  subdomain: text().notNull().unique('vanity_subdomains_once'),
  createdAt: instant('created_at').notNull(),
})

/** Subdomains that projects gave up, which no other project may have for a while. */
export const releasedSubdomains = pgTable('released_subdomains', {
  subdomain: text().primaryKey(),
  projectRef: text('project_ref').notNull(),
  releasedAt: instant('released_at').notNull(),
})

export const HOSTNAME_STATUSES = [
  '1_not_started',
  '2_initiated',
  '3_challenge_verified',
  '4_origin_setup_completed',
  '5_services_reconfigured',
] as const
export type HostnameStatus = (typeof HOSTNAME_STATUSES)[number]

/** Names elsewhere that lead to projects. */
export const customHostnames = pgTable(
  'custom_hostnames',
  {
    projectRef: text('project_ref')
      .primaryKey()
      .references(() => projects.ref),
    id: uuid().notNull().defaultRandom(),
    /** In lower case, without a dot at its end. */
    hostname: text().notNull(),
    status: text({ enum: HOSTNAME_STATUSES }).notNull(),
    /** What a TXT record must say. */
    challenge: uuid().notNull(),
    /** What the last look at its records found missing. */
    errors: text().array().notNull().default(sql`'{}'`),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    /** Anybody may begin with a name; it belongs to who has shown that it is his. */
    uniqueIndex('custom_hostnames_once').on(t.hostname).where(sql`status <> '2_initiated'`),
  ],
)

import { sql } from 'drizzle-orm'
import { pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { ofProject } from './projects.ts'

/** Subdomains of PROJECT_DOMAIN at which projects answer, in addition to their refs. */
export const vanitySubdomains = pgTable('vanity_subdomains', {
  projectRef: ofProject().primaryKey(),
  /** A single label in lower case. */
  subdomain: text().notNull().unique('vanity_subdomains_once'),
  createdAt: instant('created_at').notNull(),
})

/** Subdomains that a project has released. Other projects cannot take one for some time. */
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

/** Host names outside PROJECT_DOMAIN at which projects answer. */
export const customHostnames = pgTable(
  'custom_hostnames',
  {
    projectRef: ofProject().primaryKey(),
    id: uuid().notNull().defaultRandom(),
    /** Host name in lower case, without a trailing dot. */
    hostname: text().notNull(),
    status: text({ enum: HOSTNAME_STATUSES }).notNull(),
    /** Required value of the TXT record. */
    challenge: uuid().notNull(),
    /** Problems that the last check of the DNS records found. */
    errors: text().array().notNull().default(sql`'{}'`),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    /** Several projects may start to verify a host name; only one of them can own it. */
    uniqueIndex('custom_hostnames_once').on(t.hostname).where(sql`status <> '2_initiated'`),
  ],
)

import { sql } from 'drizzle-orm'
import { index, integer, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

export const ASSOCIATION_STATUSES = [
  'CREATING',
  'READY',
  'ASSOCIATION_REQUEST_EXPIRED',
  'ASSOCIATION_ACCEPTED',
  'CREATION_FAILED',
  'DELETING',
] as const
export type AssociationStatus = (typeof ASSOCIATION_STATUSES)[number]
export const DATABASE_TYPES = ['PRIMARY', 'READ_REPLICA'] as const

/** AWS accounts that a database is shared with. Each row has a resource share of its own at AWS, tagged with its id. */
export const privateLinkAssociations = pgTable(
  'private_link_associations',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    awsAccountId: text('aws_account_id').notNull(),
    accountName: text('account_name'),
    databaseType: text('database_type', { enum: DATABASE_TYPES }).notNull(),
    databaseIdentifier: text('database_identifier').notNull(),
    /** By which the database is reached. */
    dnsName: text('dns_name').notNull(),
    /** Of the VPC Lattice resource configuration that leads to the database. */
    resourceConfigurationArn: text('resource_configuration_arn').notNull(),
    status: text({ enum: ASSOCIATION_STATUSES }).notNull(),
    /** When AWS was last asked to make the share: until the answer is kept, there may be one that is not known here. */
    shareAskedAt: instant('share_asked_at'),
    shareArn: text('share_arn'),
    /** When the account was invited. */
    sharedAt: instant('shared_at'),
    /** When it is to be worked on next; null where nothing is to be done. */
    dueAt: instant('due_at'),
    /** Since AWS was last heard of it. */
    attempts: integer().notNull().default(0),
    leaseUntil: instant('lease_until'),
    /** A new one at each claim: who lost the lease can no longer record anything. */
    claim: uuid(),
    lastError: text('last_error'),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    uniqueIndex('private_link_associations_once')
      .on(t.projectRef, t.databaseIdentifier, t.awsAccountId)
      .where(sql`status <> 'DELETING'`),
    index('private_link_associations_of_project').on(t.projectRef, t.createdAt, t.id),
    index('private_link_associations_due').on(t.dueAt).where(sql`due_at is not null`),
  ],
)

import { sql } from 'drizzle-orm'
import { index, integer, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant, lease } from './identity.ts'
import { ofProject } from './projects.ts'

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

/** AWS accounts that a database is shared with. Each row has its own AWS resource share, which is tagged with the row's id. */
export const privateLinkAssociations = pgTable(
  'private_link_associations',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    awsAccountId: text('aws_account_id').notNull(),
    accountName: text('account_name'),
    databaseType: text('database_type', { enum: DATABASE_TYPES }).notNull(),
    databaseIdentifier: text('database_identifier').notNull(),
    /** DNS name of the database when the association was created. */
    dnsName: text('dns_name').notNull(),
    /** ARN of the database's VPC Lattice resource configuration. */
    resourceConfigurationArn: text('resource_configuration_arn').notNull(),
    status: text({ enum: ASSOCIATION_STATUSES }).notNull(),
    /** Time of the last request to AWS to create the share. Until `shareArn` is stored, AWS may have a share that is unknown here. */
    shareAskedAt: instant('share_asked_at'),
    shareArn: text('share_arn'),
    /** Time at which the account was invited. */
    sharedAt: instant('shared_at'),
    /** Time at which the association is processed next; null if nothing is due. */
    dueAt: instant('due_at'),
    /** Attempts since the last response from AWS. */
    attempts: integer().notNull().default(0),
    ...lease(),
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

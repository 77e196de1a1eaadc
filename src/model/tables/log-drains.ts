import { sql } from 'drizzle-orm'
import { index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { projects } from './projects.ts'

export const BACKEND_TYPES = [
  'postgres',
  'bigquery',
  'clickhouse',
  'webhook',
  'datadog',
  'loki',
  'sentry',
  's3',
  'axiom',
  'last9',
  'otlp',
  'syslog',
] as const
export type BackendType = (typeof BACKEND_TYPES)[number]

/** Where a project's logs are sent. One that was deleted keeps its row until its entries are gone. */
export const logDrains = pgTable(
  'log_drains',
  {
    id: uuid().primaryKey().default(sql`uuidv7()`),
    projectRef: text('project_ref')
      .notNull()
      .references(() => projects.ref),
    name: text().notNull(),
    description: text(),
    backendType: text('backend_type', { enum: BACKEND_TYPES }).notNull(),
    /** Without the secrets, which are sealed as one JSON object. */
    config: jsonb().$type<Record<string, unknown>>().notNull(),
    sealedSecrets: text('sealed_secrets').notNull(),
    /** The first failed batch since the last that was taken, and how many failed since then. */
    failingSince: instant('failing_since'),
    failures: integer().notNull().default(0),
    /** Not before. */
    nextAt: instant('next_at').notNull(),
    leaseUntil: instant('lease_until'),
    /** A new one at each claim: who lost the lease can no longer record anything. */
    claim: uuid(),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    deletedAt: instant('deleted_at'),
  },
  (t) => [
    uniqueIndex('log_drains_name_once').on(t.projectRef, t.name).where(sql`deleted_at is null`),
    index('log_drains_deleted').on(t.deletedAt).where(sql`deleted_at is not null`),
  ],
)

const ENTRY_KINDS = ['call', 'lines', 'build', 'run_line', 'postgres_log', 'storage_request'] as const

/**
 * What a drain has still to send, written by triggers in the transaction that logs it: what commits late is there when it has
 * committed, which no cursor over ids or times could promise. What was sent is deleted.
 */
export const logDrainEntries = pgTable(
  'log_drain_entries',
  {
    drainId: uuid('drain_id').notNull(),
    /** In the order of time. */
    id: uuid().notNull().default(sql`uuidv7()`),
    kind: text({ enum: ENTRY_KINDS }).notNull(),
    /** A call of a program, or lines that it printed later; a build of a worker; a line of a run; a message of Postgres; a request to storage. */
    recordId: uuid('record_id').notNull(),
    /** Of a call and of lines: those after the first so many, up to the last. */
    firstLine: integer('first_line').notNull().default(0),
    lastLine: integer('last_line').notNull().default(0),
    /** How many rows of the logs it stands for, and about how many bytes. */
    rows: integer().notNull(),
    bytes: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.drainId, t.id] })],
)

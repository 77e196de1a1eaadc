import { sql } from 'drizzle-orm'
import { index, integer, jsonb, pgTable, primaryKey, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant, lease } from './identity.ts'
import { ofProject } from './projects.ts'

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

/** Destinations of a project's logs. The row of a deleted drain remains until its entries are deleted. */
export const logDrains = pgTable(
  'log_drains',
  {
    id: uuid().primaryKey().default(sql`uuidv7()`),
    projectRef: ofProject(),
    name: text().notNull(),
    description: text(),
    backendType: text('backend_type', { enum: BACKEND_TYPES }).notNull(),
    /** Configuration without the secrets, which are in `sealedSecrets` as one sealed JSON object. */
    config: jsonb().$type<Record<string, unknown>>().notNull(),
    sealedSecrets: text('sealed_secrets').notNull(),
    /** Time of the first failed batch since the last success. `failures` counts the failed batches since then. */
    failingSince: instant('failing_since'),
    failures: integer().notNull().default(0),
    /** Earliest time of the next batch. */
    nextAt: instant('next_at').notNull(),
    ...lease(),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    deletedAt: instant('deleted_at'),
  },
  (t) => [
    uniqueIndex('log_drains_name_once').on(t.projectRef, t.name).where(sql`deleted_at is null`),
    index('log_drains_deleted').on(t.deletedAt).where(sql`deleted_at is not null`),
  ],
)

const ENTRY_KINDS = [
  'call',
  'lines',
  'build',
  'run_line',
  'postgres_log',
  'storage_request',
  'data_api_request',
] as const

/**
 * Outbox of a drain. Triggers write an entry in the transaction that logs the row, so a row that commits late is sent too, which a
 * cursor over ids or times cannot guarantee. Entries are deleted when they have been sent.
 */
export const logDrainEntries = pgTable(
  'log_drain_entries',
  {
    drainId: uuid('drain_id').notNull(),
    /** Version 7 UUID, so entries are ordered by time. */
    id: uuid().notNull().default(sql`uuidv7()`),
    kind: text({ enum: ENTRY_KINDS }).notNull(),
    /** Id of the logged row, whose table depends on `kind`. */
    recordId: uuid('record_id').notNull(),
    /** Range of console lines of a call: after `firstLine`, up to `lastLine`. */
    firstLine: integer('first_line').notNull().default(0),
    lastLine: integer('last_line').notNull().default(0),
    /** Number of log rows in the entry. `bytes` is their approximate size. */
    rows: integer().notNull(),
    bytes: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.drainId, t.id] })],
)

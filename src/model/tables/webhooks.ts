import { sql } from 'drizzle-orm'
import { boolean, index, integer, json, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import type { EventType } from '../event-types.ts'
import { branches } from './branches.ts'
import { instant, organizations } from './identity.ts'
import { projects } from './projects.ts'

export const DELIVERY_STATUSES = ['pending', 'success', 'failure', 'skipped'] as const
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number]

/** Why an attempt is made: `retry` is a user's single one, `replay` begins an event's schedule anew. */
const DELIVERY_TRIGGERS = ['event', 'test', 'retry', 'replay'] as const
export type DeliveryTrigger = (typeof DELIVERY_TRIGGERS)[number]

/** Time-ordered ids (version 7), so that lists and the purge go along the primary key. */
const timedId = () => uuid().primaryKey().default(sql`uuidv7()`)

/** A signing secret that was replaced, and until when receivers may still verify with it. */
export interface OldSecret {
  sealed: string
  /** Epoch milliseconds. */
  until: number
}

/** Without project_ref the endpoint is the organization's and receives the events of all its projects too. */
export const webhookEndpoints = pgTable(
  'webhook_endpoints',
  {
    id: timedId(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id, { onDelete: 'cascade' }),
    projectRef: text('project_ref').references(() => projects.ref),
    /** Of a branch's notify_url: it hears of that branch alone, and no list shows it. */
    branchId: uuid('branch_id').references(() => branches.id),
    url: text().notNull(),
    enabled: boolean().notNull(),
    description: text(),
    eventTypes: text('event_types').array().$type<(EventType | '*')[]>().notNull(),
    /** A JSON object of names and values, as these often hold credentials of the receiver. */
    sealedHeaders: text('sealed_headers'),
    sealedSecret: text('sealed_secret').notNull(),
    /** Newest first. */
    oldSecrets: jsonb('old_secrets').$type<OldSecret[]>().notNull().default([]),
    /** The first failed attempt since the last success. */
    failingSince: instant('failing_since'),
    createdBy: uuid('created_by').notNull(),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    index('webhook_endpoints_organization').on(t.organizationId, t.id),
    index('webhook_endpoints_project').on(t.projectRef, t.id),
    index('webhook_endpoints_of_organization').on(t.organizationId).where(sql`project_ref is null`),
    uniqueIndex('webhook_endpoints_branch').on(t.branchId),
  ],
)

/** What happened. Its payload is text that is never made again, so that every attempt sends the same bytes. */
export const webhookEvents = pgTable('webhook_events', {
  id: timedId(),
  organizationId: uuid('organization_id')
    .notNull()
    .references(() => organizations.id, { onDelete: 'cascade' }),
  projectRef: text('project_ref'),
  type: text().$type<EventType>().notNull(),
  payload: json().notNull(),
  /** Of two events with one key only the first is taken. */
  idempotencyKey: text('idempotency_key').unique(),
  publishedAt: instant('published_at').notNull(),
})

/**
 * One attempt to deliver an endpoint's copy of an event, written before it is made: the outbox and the log in one.
 * pending -> success | failure | skipped, and never back; the next attempt is a row of its own.
 */
export const webhookDeliveries = pgTable(
  'webhook_deliveries',
  {
    id: timedId(),
    /** The copy: the `webhook-id` of all its attempts, `event_id` in the API. */
    messageId: uuid('message_id').notNull(),
    eventId: uuid('event_id').notNull(),
    endpointId: uuid('endpoint_id')
      .notNull()
      .references(() => webhookEndpoints.id, { onDelete: 'cascade' }),
    trigger: text({ enum: DELIVERY_TRIGGERS }).notNull(),
    attempt: integer().notNull().default(1),
    status: text({ enum: DELIVERY_STATUSES }).notNull().default('pending'),
    /** A user waits for it: it comes before all others. */
    asked: boolean().notNull().default(false),
    /** Not before. */
    nextAt: instant('next_at').notNull(),
    leaseUntil: instant('lease_until'),
    /** A new one at each claim: who lost the lease can no longer record anything. */
    claim: uuid(),
    /** How often it was claimed; more than once where a sender died. */
    claims: integer().notNull().default(0),
    attemptedAt: instant('attempted_at'),
    responseCode: integer('response_code').notNull().default(0),
    responseHeaders: json('response_headers').$type<Record<string, string>>().notNull().default({}),
    responseBody: text('response_body').notNull().default(''),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    index('webhook_deliveries_log').on(t.endpointId, t.id),
    uniqueIndex('webhook_deliveries_one_pending').on(t.messageId).where(sql`status = 'pending'`),
    index('webhook_deliveries_asked').on(t.endpointId, t.nextAt).where(sql`status = 'pending' and asked`),
    /** First attempts before retries, as a claim takes them. */
    index('webhook_deliveries_due').on(t.endpointId, sql`(attempt > 1)`, t.nextAt).where(sql`status = 'pending'`),
  ],
)

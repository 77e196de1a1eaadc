import { sql } from 'drizzle-orm'
import { boolean, index, integer, json, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import type { EventType } from '../event-types.ts'
import { branches } from './branches.ts'
import { instant, lease, ofOrganization } from './identity.ts'
import { projects } from './projects.ts'

export const DELIVERY_STATUSES = ['pending', 'success', 'failure', 'skipped'] as const
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number]

/** Reason of an attempt: `retry` is a single attempt that a user requested, `replay` restarts the retry schedule of an event. */
const DELIVERY_TRIGGERS = ['event', 'test', 'retry', 'replay'] as const
export type DeliveryTrigger = (typeof DELIVERY_TRIGGERS)[number]

/** Time-ordered ids (UUID version 7), so that lists and the purge can use the primary key. */
const timedId = () => uuid().primaryKey().default(sql`uuidv7()`)

/** A signing secret that was replaced. Deliveries are signed with it too until the given time. */
export interface OldSecret {
  sealed: string
  /** Epoch milliseconds. */
  until: number
}

/** An endpoint without project_ref belongs to the organization and also receives the events of all its projects. */
export const webhookEndpoints = pgTable(
  'webhook_endpoints',
  {
    id: timedId(),
    organizationId: ofOrganization(),
    projectRef: text('project_ref').references(() => projects.ref),
    /** Set for the notify_url of a branch: the endpoint receives the events of that branch only and is not listed. */
    branchId: uuid('branch_id').references(() => branches.id),
    url: text().notNull(),
    enabled: boolean().notNull(),
    description: text(),
    eventTypes: text('event_types').array().$type<(EventType | '*')[]>().notNull(),
    /** Custom headers as a sealed JSON object: they often hold credentials of the receiver. */
    sealedHeaders: text('sealed_headers'),
    sealedSecret: text('sealed_secret').notNull(),
    /** Newest first. */
    oldSecrets: jsonb('old_secrets').$type<OldSecret[]>().notNull().default([]),
    /** Time of the first failed attempt since the last success. */
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

/** Events. The payload is stored as text, so that every attempt sends the same bytes. */
export const webhookEvents = pgTable(
  'webhook_events',
  {
    id: timedId(),
    organizationId: ofOrganization(),
    projectRef: text('project_ref'),
    type: text().$type<EventType>().notNull(),
    payload: json().notNull(),
    /** Only the first event with a key is published. */
    idempotencyKey: text('idempotency_key').unique(),
    publishedAt: instant('published_at').notNull(),
  },
  (t) => [index('webhook_events_organization').on(t.organizationId)],
)

/**
 * Attempts to deliver an event to an endpoint. A row is written before the attempt, so the table is both outbox and log.
 * The status goes from pending to success, failure or skipped and never back; the next attempt is a new row.
 */
export const webhookDeliveries = pgTable(
  'webhook_deliveries',
  {
    id: timedId(),
    /** Id of the event's message to this endpoint: the `webhook-id` of all its attempts, `event_id` in the API. */
    messageId: uuid('message_id').notNull(),
    eventId: uuid('event_id').notNull(),
    endpointId: uuid('endpoint_id')
      .notNull()
      .references(() => webhookEndpoints.id, { onDelete: 'cascade' }),
    trigger: text({ enum: DELIVERY_TRIGGERS }).notNull(),
    attempt: integer().notNull().default(1),
    status: text({ enum: DELIVERY_STATUSES }).notNull().default('pending'),
    /** True if a user requested the attempt and is waiting for it: it is sent before all others. */
    asked: boolean().notNull().default(false),
    /** Earliest time of the attempt. */
    nextAt: instant('next_at').notNull(),
    ...lease(),
    /** Number of claims; more than one if a sender has died. */
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
    /** First attempts before retries, in the order in which they are claimed. */
    index('webhook_deliveries_due').on(t.endpointId, sql`(attempt > 1)`, t.nextAt).where(sql`status = 'pending'`),
  ],
)

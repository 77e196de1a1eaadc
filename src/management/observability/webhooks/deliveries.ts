import {
  and,
  asc,
  desc,
  eq,
  exists,
  getTableColumns,
  gt,
  gte,
  inArray,
  isNull,
  lt,
  notLike,
  or,
  sql,
} from 'drizzle-orm'
import type * as z from 'zod'
import type { Ctx } from '../../../ctx.ts'
import { canonicalType, EVENT_TYPES, type EventType, SAMPLES } from '../../../model/event-types.ts'
import { projects, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../../model/tables/index.ts'
import { payloadOf } from '../../../outbound/events/publish.ts'
import { RETENTION_MS } from '../../../outbound/webhooks/purge.ts'
import { toReplyBody } from '../../../outbound/webhooks/response-capture.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { type Owner, ownedBy, subjectOf } from './endpoint-owner.ts'
import { type Endpoint, findEndpoint } from './endpoints.ts'
import type { DeliveryListQuery, DeliveryReply, TestEvent } from './schema.ts'

type Delivery = z.input<typeof DeliveryReply>['data']
interface Row {
  delivery: typeof webhookDeliveries.$inferSelect
  event: typeof webhookEvents.$inferSelect
}

/** The maximum length of response bodies in lists; a single delivery contains the whole body. */
const LISTED_BODY_MAX = 4_096
/** Deliveries scanned per page for callers who see only some of them. */
const SCANNED_MAX = 5_000
const FIRST_ID = '00000000-0000-0000-0000-000000000000'
const LAST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
const listed = {
  ...getTableColumns(webhookDeliveries),
  responseBody: sql<string>`left(${webhookDeliveries.responseBody}, ${LISTED_BODY_MAX})`,
}

/** Excludes expired deliveries that the purge has not deleted yet. */
const isUnexpired = (ctx: Ctx) => gte(webhookDeliveries.createdAt, retentionStart(ctx))
/** Member events name projects and the members who received access. */
const MEMBER_EVENTS = 'v1.organization.member.%'

/** Excludes events of projects that the caller may not see. Access to a project includes its branches. */
const isVisibleTo = ({ db }: Ctx, { onlyProjects }: Owner) =>
  onlyProjects &&
  or(
    and(isNull(webhookEvents.projectRef), notLike(webhookEvents.type, MEMBER_EVENTS)),
    inArray(webhookEvents.projectRef, [...onlyProjects]),
    exists(
      db
        .select({ ref: projects.ref })
        .from(projects)
        .where(and(eq(projects.ref, webhookEvents.projectRef), inArray(projects.parentRef, [...onlyProjects]))),
    ),
  )
const retentionStart = ({ now }: Ctx) => new Date(now().getTime() - RETENTION_MS)

/**
 * Limits a page to deliveries after the cursor. For callers who see only some projects, the page also ends at the horizon: the
 * last of SCANNED_MAX deliveries, or null if there are fewer.
 */
function pageRange(
  { db }: Ctx,
  { onlyProjects }: Owner,
  endpointId: string,
  query: z.output<typeof DeliveryListQuery>,
) {
  const { 'page[after]': after, 'page[before]': before } = query
  const { id } = webhookDeliveries
  const order = before ? asc(id) : desc(id)
  const afterCursor = and(
    eq(webhookDeliveries.endpointId, endpointId),
    after ? lt(id, after) : undefined,
    before ? gt(id, before) : undefined,
  )
  if (!onlyProjects) return { order, range: afterCursor, horizon: sql<null>`null` }
  const last = db
    .select({ id })
    .from(webhookDeliveries)
    .where(afterCursor)
    .orderBy(order)
    .offset(SCANNED_MAX - 1)
    .limit(1)
  const horizon = sql<string | null>`(${last})`
  const beforeHorizon = before
    ? sql`${id} <= coalesce(${horizon}, ${LAST_ID})`
    : sql`${id} >= coalesce(${horizon}, ${FIRST_ID})`
  return { order, range: and(afterCursor, beforeHorizon), horizon }
}

export async function listDeliveries(ctx: Ctx, owner: Owner, id: string, query: z.output<typeof DeliveryListQuery>) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before } = query
  const { order, range, horizon } = pageRange(ctx, owner, id, query)
  const selectHorizon = ctx.db
    .select({ horizon })
    .from(webhookEndpoints)
    .where(and(ownedBy(owner), eq(webhookEndpoints.id, id)))
  const selectPage = ctx.db
    .select({ delivery: listed, event: webhookEvents })
    .from(webhookDeliveries)
    .innerJoin(webhookEvents, eq(webhookEvents.id, webhookDeliveries.eventId))
    .innerJoin(webhookEndpoints, eq(webhookEndpoints.id, webhookDeliveries.endpointId))
    .where(and(range, ownedBy(owner), isUnexpired(ctx), isVisibleTo(ctx, owner)))
    .orderBy(order)
    .limit(size + 1)
  const [[endpoint], rows] = await ctx.db.batch([selectHorizon, selectPage])
  if (!endpoint) throw new ApiError('not_found.endpoint')
  const more = rows.length > size
  const page = rows.slice(0, size)
  if (before) page.reverse()
  const first = page[0]?.delivery.id
  const last = page.at(-1)?.delivery.id
  // A page that ends at the horizon may be empty but still has a next page.
  const forward = more ? (before ? first : last) : endpoint.horizon
  const backward = (before ? last : after && first) ?? endpoint.horizon
  // After the last page in one direction, all deliveries are in the other.
  const [newer, older] = before ? [forward, backward ?? LAST_ID] : [after && (backward ?? FIRST_ID), forward]
  const link = (cursor = '') => `${owner.path}/webhooks/endpoints/${id}/deliveries?page[size]=${size}${cursor}`
  return {
    data: page.map(toDelivery),
    links: {
      first: link(),
      prev: newer ? link(`&page[before]=${newer}`) : null,
      next: older ? link(`&page[after]=${older}`) : null,
    },
  }
}

export async function getDelivery(ctx: Ctx, owner: Owner, id: string) {
  return { data: toDelivery(await findDelivery(ctx, owner, id)) }
}

async function findDelivery(ctx: Ctx, owner: Owner, id: string): Promise<Row & { enabled: boolean }> {
  const [row] = await ctx.db
    .select({ delivery: webhookDeliveries, event: webhookEvents, enabled: webhookEndpoints.enabled })
    .from(webhookDeliveries)
    .innerJoin(webhookEvents, eq(webhookEvents.id, webhookDeliveries.eventId))
    .innerJoin(webhookEndpoints, eq(webhookEndpoints.id, webhookDeliveries.endpointId))
    .where(and(eq(webhookDeliveries.id, id), ownedBy(owner), isVisibleTo(ctx, owner), isUnexpired(ctx)))
  if (!row) throw new ApiError('not_found.delivery')
  return row
}

/** Sends a test event through the usual pipeline, to this endpoint only and with a single attempt. */
export async function sendTestEvent(ctx: Ctx, owner: Owner, id: string, { data }: z.output<typeof TestEvent> = {}) {
  const endpoint = await findEndpoint(ctx, owner, id)
  if (!endpoint.enabled) throw new ApiError('bad_request.endpoint.test.disabled')
  const type = testTypeOf(endpoint, data?.attributes?.type)
  const eventId = newTimedId(ctx.now())
  const payload = payloadOf(
    { ...owner, fields: { ...SAMPLES[type], is_test: true } },
    { actorUserId: ctx.actor.userId },
  )
  const { organization, projectRef } = owner
  await mutate(ctx, async ({ tx, wake, trace }) => {
    const rows = await rowsOf(
      tx,
      sql`
      with event as (
        insert into ${webhookEvents} (id, organization_id, project_ref, type, payload, published_at)
        values (${eventId}, ${organization.id}, ${projectRef}, ${type}, ${payload}::json, ${ctx.databaseNow})
        returning id, published_at
      )
      insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, asked, next_at, created_at)
      select event.id, event.id, e.id, 'test', true, event.published_at, event.published_at
      from event, ${webhookEndpoints} e where e.id = ${id} for key share of e
      returning id`,
    )
    if (rows.length === 0) throw new ApiError('not_found.endpoint')
    wake(id)
    await trace({ ...subjectOf(owner), action: 'webhook.endpoint.test', detail: { endpoint: id, event: eventId } })
  })
  return { data: { type: 'ingress' as const, id: eventId } }
}

function testTypeOf({ eventTypes }: Endpoint, requested: string | undefined): EventType {
  const isSubscribed = (type: EventType) => eventTypes.includes('*') || eventTypes.includes(type)
  const type = requested === undefined ? EVENT_TYPES.find(isSubscribed) : canonicalType(requested)
  if (!type || !isSubscribed(type)) throw new ApiError('bad_request.endpoint.test.wrong_event_type')
  return type
}

/**
 * Makes another attempt now. A pending attempt is moved forward instead, so that two requests do not cause two attempts; it
 * does not count against the retry schedule.
 */
export async function retryDelivery(ctx: Ctx, owner: Owner, id: string) {
  const { delivery, event, enabled } = await findDelivery(ctx, owner, id)
  if (event.publishedAt < retentionStart(ctx)) throw new ApiError('not_found.delivery')
  if (!enabled) throw new ApiError('bad_request.endpoint.test.disabled')
  const { messageId, eventId, endpointId, attempt } = delivery
  await mutate(ctx, async ({ tx, wake, trace }) => {
    const rows = await rowsOf(
      tx,
      sql`
      insert into ${webhookDeliveries} as d (message_id, event_id, endpoint_id, trigger, asked, attempt, next_at, created_at)
      select ${messageId}, ${eventId}, e.id, 'retry', true, ${attempt + 1}, ${ctx.databaseNow}, ${ctx.databaseNow}
      from ${webhookEndpoints} e where e.id = ${endpointId} for key share of e
      on conflict (message_id) where status = 'pending'
      do update set asked = true, next_at = least(d.next_at, excluded.next_at),
        attempt = case when d.next_at > excluded.next_at then greatest(1, d.attempt - 1) else d.attempt end
      returning id`,
    )
    if (rows.length === 0) throw new ApiError('not_found.delivery')
    wake(endpointId)
    await trace({ ...subjectOf(owner), action: 'webhook.delivery.retry', detail: { delivery: id } })
  })
  return { data: { type: 'ingress' as const, id: messageId } }
}

const toDelivery = ({ delivery, event }: Row): Delivery => ({
  type: 'delivery',
  id: delivery.id,
  attributes: {
    id: delivery.id,
    event_id: delivery.messageId,
    status: delivery.status,
    response_code: delivery.responseCode,
    response_headers: delivery.responseHeaders,
    response_body: toReplyBody(delivery.responseBody),
    error_code: delivery.errorCode,
    error_message: delivery.errorMessage,
    attempt_timestamp: (delivery.attemptedAt ?? delivery.nextAt).toISOString(),
    event: {
      type: event.type,
      payload: event.payload as Delivery['attributes']['event']['payload'],
      timestamp: event.publishedAt.toISOString(),
    },
  },
})

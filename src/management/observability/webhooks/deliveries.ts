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
import { shownBody } from '../../../outbound/webhooks/response-capture.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import { type Owner, ownedBy, subjectOf } from './endpoint-owner.ts'
import { type Endpoint, findEndpoint } from './endpoints.ts'
import type { DeliveryListQuery, DeliveryReply, TestEvent } from './schema.ts'

type Shown = z.input<typeof DeliveryReply>['data']
interface Row {
  delivery: typeof webhookDeliveries.$inferSelect
  event: typeof webhookEvents.$inferSelect
}

/** A list shows so much of each answer's body, in characters; a delivery read by itself shows it whole. */
const LISTED_BODY_MAX = 4_096
/** Who sees a part alone is shown a page of what so many deliveries hold for him, not of the whole log. */
const LOOKED_MAX = 5_000
const FIRST_ID = '00000000-0000-0000-0000-000000000000'
const LAST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
const listed = {
  ...getTableColumns(webhookDeliveries),
  responseBody: sql<string>`left(${webhookDeliveries.responseBody}, ${LISTED_BODY_MAX})`,
}

/** Expired deliveries are gone for every reader, whether the purge has come to them or not. */
const unexpired = (ctx: Ctx) => gte(webhookDeliveries.createdAt, oldest(ctx))
/** They name projects, and whom they were opened for. */
const OF_MEMBERS = 'v1.organization.member.%'

/** The events of projects that the caller may not see are not there for him; whose project he may see, its branches he may too. */
const visibleTo = ({ db }: Ctx, { onlyProjects }: Owner) =>
  onlyProjects &&
  or(
    and(isNull(webhookEvents.projectRef), notLike(webhookEvents.type, OF_MEMBERS)),
    inArray(webhookEvents.projectRef, [...onlyProjects]),
    exists(
      db
        .select({ ref: projects.ref })
        .from(projects)
        .where(and(eq(projects.ref, webhookEvents.projectRef), inArray(projects.parentRef, [...onlyProjects]))),
    ),
  )
const oldest = ({ now }: Ctx) => new Date(now().getTime() - RETENTION_MS)

/** From the cursor on, and to who sees a part alone no further than the horizon: the last of so many, null where there are fewer. */
function lookedAt({ db }: Ctx, { onlyProjects }: Owner, endpointId: string, query: z.output<typeof DeliveryListQuery>) {
  const { 'page[after]': after, 'page[before]': before } = query
  const { id } = webhookDeliveries
  const order = before ? asc(id) : desc(id)
  const beyond = and(
    eq(webhookDeliveries.endpointId, endpointId),
    after ? lt(id, after) : undefined,
    before ? gt(id, before) : undefined,
  )
  if (!onlyProjects) return { order, within: beyond, horizon: sql<null>`null` }
  const last = db
    .select({ id })
    .from(webhookDeliveries)
    .where(beyond)
    .orderBy(order)
    .offset(LOOKED_MAX - 1)
    .limit(1)
  const horizon = sql<string | null>`(${last})`
  const near = before ? sql`${id} <= coalesce(${horizon}, ${LAST_ID})` : sql`${id} >= coalesce(${horizon}, ${FIRST_ID})`
  return { order, within: and(beyond, near), horizon }
}

export async function listDeliveries(ctx: Ctx, owner: Owner, id: string, query: z.output<typeof DeliveryListQuery>) {
  const { 'page[size]': size, 'page[after]': after, 'page[before]': before } = query
  const { order, within, horizon } = lookedAt(ctx, owner, id, query)
  const looking = ctx.db
    .select({ horizon })
    .from(webhookEndpoints)
    .where(and(ownedBy(owner), eq(webhookEndpoints.id, id)))
  const listing = ctx.db
    .select({ delivery: listed, event: webhookEvents })
    .from(webhookDeliveries)
    .innerJoin(webhookEvents, eq(webhookEvents.id, webhookDeliveries.eventId))
    .innerJoin(webhookEndpoints, eq(webhookEndpoints.id, webhookDeliveries.endpointId))
    .where(and(within, ownedBy(owner), unexpired(ctx), visibleTo(ctx, owner)))
    .orderBy(order)
    .limit(size + 1)
  const [[looked], rows] = await ctx.db.batch([looking, listing])
  if (!looked) throw new ApiError('not_found.endpoint')
  const more = rows.length > size
  const page = rows.slice(0, size)
  if (before) page.reverse()
  const first = page[0]?.delivery.id
  const last = page.at(-1)?.delivery.id
  // A page that ends where the look did may hold nothing, and is gone on from all the same.
  const onward = more ? (before ? first : last) : looked.horizon
  const back = (before ? last : after && first) ?? looked.horizon
  // Beyond the last one in a direction there is nothing, and all of them lie in the other.
  const [newer, older] = before ? [onward, back ?? LAST_ID] : [after && (back ?? FIRST_ID), onward]
  const link = (cursor = '') => `${owner.path}/webhooks/endpoints/${id}/deliveries?page[size]=${size}${cursor}`
  return {
    data: page.map(shown),
    links: {
      first: link(),
      prev: newer ? link(`&page[before]=${newer}`) : null,
      next: older ? link(`&page[after]=${older}`) : null,
    },
  }
}

export async function getDelivery(ctx: Ctx, owner: Owner, id: string) {
  return { data: shown(await findDelivery(ctx, owner, id)) }
}

async function findDelivery(ctx: Ctx, owner: Owner, id: string): Promise<Row & { enabled: boolean }> {
  const [row] = await ctx.db
    .select({ delivery: webhookDeliveries, event: webhookEvents, enabled: webhookEndpoints.enabled })
    .from(webhookDeliveries)
    .innerJoin(webhookEvents, eq(webhookEvents.id, webhookDeliveries.eventId))
    .innerJoin(webhookEndpoints, eq(webhookEndpoints.id, webhookDeliveries.endpointId))
    .where(and(eq(webhookDeliveries.id, id), ownedBy(owner), visibleTo(ctx, owner), unexpired(ctx)))
  if (!row) throw new ApiError('not_found.delivery')
  return row
}

/** Through the same pipeline as any event, for this endpoint alone and with one attempt. */
export async function sendTestEvent(ctx: Ctx, owner: Owner, id: string, { data }: z.output<typeof TestEvent> = {}) {
  const endpoint = await findEndpoint(ctx, owner, id)
  if (!endpoint.enabled) throw new ApiError('bad_request.endpoint.test.disabled')
  const type = testedType(endpoint, data?.attributes.type)
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

function testedType({ eventTypes }: Endpoint, asked: string | undefined): EventType {
  const subscribed = (type: EventType) => eventTypes.includes('*') || eventTypes.includes(type)
  const type = asked === undefined ? EVENT_TYPES.find(subscribed) : canonicalType(asked)
  if (!type || !subscribed(type)) throw new ApiError('bad_request.endpoint.test.wrong_event_type')
  return type
}

/**
 * One more attempt, now. Where one is pending already, that one is brought forward, so that two clicks make no two attempts; it
 * does not count against the schedule then, which goes on from where it was.
 */
export async function retryDelivery(ctx: Ctx, owner: Owner, id: string) {
  const { delivery, event, enabled } = await findDelivery(ctx, owner, id)
  if (event.publishedAt < oldest(ctx)) throw new ApiError('not_found.delivery')
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

const shown = ({ delivery, event }: Row): Shown => ({
  type: 'delivery',
  id: delivery.id,
  attributes: {
    id: delivery.id,
    event_id: delivery.messageId,
    status: delivery.status,
    response_code: delivery.responseCode,
    response_headers: delivery.responseHeaders,
    response_body: shownBody(delivery.responseBody),
    error_code: delivery.errorCode,
    error_message: delivery.errorMessage,
    attempt_timestamp: (delivery.attemptedAt ?? delivery.nextAt).toISOString(),
    event: {
      type: event.type,
      payload: event.payload as Shown['attributes']['event']['payload'],
      timestamp: event.publishedAt.toISOString(),
    },
  },
})

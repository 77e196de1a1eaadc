import { type SQL, sql } from 'drizzle-orm'
import type { EventType, Payloads } from '../../model/event-types.ts'
import { webhookDeliveries, webhookEndpoints, webhookEvents } from '../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../platform/db/client.ts'

interface Subject {
  organization: { id: string; slug: string }
  projectRef: string | null
  /** The reason of the change; only logged. */
  reason?: string | undefined
}

export type NewEvent = {
  [T in EventType]: Subject & { type: T; fields: Payloads[T]; idempotencyKey?: string; branchId?: string }
}[EventType]

interface Publication {
  /** The acting user; undefined for the system. */
  actorUserId: string | undefined
  /** The current time of the database. */
  now: SQL
}

/**
 * Stores events in order, and a pending delivery per enabled subscribed endpoint, in the caller's transaction (a transactional
 * outbox). Locks the endpoints against deletion. Returns the endpoints to wake after the commit. Takes one round trip for any
 * number of events.
 */
export async function publish(
  tx: Pick<Writer, 'execute'>,
  events: NewEvent | readonly NewEvent[],
  publication: Publication,
): Promise<string[]> {
  const given = [events].flat().map((event) => ({
    organization: event.organization.id,
    project: event.projectRef,
    type: event.type,
    payload: payloadOf(event, publication),
    key: event.idempotencyKey,
    branch: event.branchId,
  }))
  const statement = sql`
    with given as materialized (
      select uuidv7() as id, g.* from json_to_recordset(${JSON.stringify(given)}::json)
        as g (organization uuid, project text, type text, payload text, key text, branch uuid)
    ), event as (
      insert into ${webhookEvents} (id, organization_id, project_ref, type, payload, idempotency_key, published_at)
      select id, organization, project, type, payload::json, key, ${publication.now} from given
      on conflict (idempotency_key) do nothing
      returning id, published_at
    )
    insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, next_at, created_at)
    select uuidv7(), event.id, e.id, 'event', event.published_at, event.published_at
    from event join given g on g.id = event.id cross join lateral (
      select id from ${webhookEndpoints} where organization_id = g.organization and project_ref is null
      union all select id from ${webhookEndpoints} where project_ref = g.project
    ) near join ${webhookEndpoints} e on e.id = near.id
    where e.organization_id = g.organization and e.enabled and e.event_types && array[g.type, '*']
      and (e.branch_id is null or e.branch_id = g.branch)
    for key share of e
    returning endpoint_id`
  return (await rowsOf<{ endpoint_id: string }>(tx, statement)).map(({ endpoint_id: id }) => id)
}

/** Serializes the payload with its keys always in this order. */
export function payloadOf(
  { organization, projectRef, fields }: Subject & { fields: object },
  { actorUserId }: Pick<Publication, 'actorUserId'>,
) {
  return JSON.stringify({
    organization_slug: organization.slug,
    project_ref: projectRef,
    ...fields,
    actor: actorUserId ? { user_id: actorUserId } : null,
  })
}

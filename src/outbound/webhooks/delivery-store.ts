import { type SQL, sql } from 'drizzle-orm'
import {
  auditLog,
  type DeliveryTrigger,
  type OldSecret,
  webhookDeliveries,
  webhookEndpoints,
  webhookEvents,
} from '../../model/tables/index.ts'
import type { Writer } from '../../platform/db/client.ts'

/** Runs one statement; each one below is a transaction by itself. */
export interface Runner {
  execute(query: SQL): PromiseLike<{ rows: Record<string, unknown>[] }>
}

/** A delivery that this sender alone may make until the lease ends, with what its endpoint says at the moment. */
export interface Claimed {
  id: string
  claim: string
  messageId: string
  endpointId: string
  attempt: number
  trigger: DeliveryTrigger
  asked: boolean
  claims: number
  type: string
  /** Null where the event has expired, as one may behind a receiver that is away for long. */
  payload: string | null
  /** Epoch milliseconds by the database's clock, like the others. */
  publishedAt: number
  dueAt: number
  claimedAt: number
  url: string
  enabled: boolean
  sealedSecret: string
  oldSecrets: OldSecret[]
  sealedHeaders: string | null
  failingSince: number | null
}

/** Longer than an attempt takes whose statements are answered in time: name, answer, record. */
const LEASE_MS = 35_000

const epochMs = (value: SQL) => sql`(extract(epoch from ${value}) * 1000)::float8`
const ms = (value: number | SQL) => sql`${value} * interval '1 millisecond'`

/** A retry that is overdue by this is no longer put behind first attempts: else, where they keep coming, it never came. */
const RETRY_PATIENCE_MS = 60_000

/**
 * Leases up to `count` due deliveries of the endpoint: what a user asked for, then first attempts, then retries. With the same `claim` it may be
 * asked again when its answer got lost: the rows that it took then come again.
 */
export async function claimDue(
  db: Runner,
  now: SQL,
  endpointId: string,
  claim: string,
  count: number,
): Promise<Claimed[]> {
  const free = sql`d.status = 'pending' and d.next_at <= ${now}
    and (d.lease_until is null or d.lease_until <= ${now} or d.claim = ${claim})`
  // Each along its own part of the index, so that a backlog need not be sorted.
  const oldest = (which: SQL) => sql`(select d.id from ${webhookDeliveries} d
    where d.endpoint_id = ${endpointId} and ${which} and ${free} order by d.next_at limit ${count})`
  const { rows } = await db.execute(sql`
    with candidates as (
      ${oldest(sql`d.asked`)} union ${oldest(sql`(d.attempt > 1) is false`)} union ${oldest(sql`(d.attempt > 1) is true`)}
    ), due as (
      select d.id, d.event_id, d.claim as before from candidates join ${webhookDeliveries} d using (id)
      where ${free}
      order by d.asked desc, (d.attempt > 1 and d.next_at > ${now} - ${ms(RETRY_PATIENCE_MS)}), d.next_at
      limit ${count} for update of d skip locked
    )
    update ${webhookDeliveries} d
    set claim = ${claim}, lease_until = ${now} + ${ms(LEASE_MS)},
      claims = d.claims + case when due.before = ${claim} then 0 else 1 end
    from due left join ${webhookEvents} v on v.id = due.event_id, ${webhookEndpoints} e
    where d.id = due.id and e.id = d.endpoint_id
    returning d.id, d.claim, d.message_id as "messageId", d.endpoint_id as "endpointId", d.attempt, d.trigger, d.asked, d.claims, v.type, v.payload::text as payload,
      ${epochMs(sql`coalesce(v.published_at, d.created_at)`)} as "publishedAt", ${epochMs(sql`d.next_at`)} as "dueAt", ${epochMs(now)} as "claimedAt",
      e.url, e.enabled, e.sealed_secret as "sealedSecret", e.old_secrets as "oldSecrets", e.sealed_headers as "sealedHeaders",
      ${epochMs(sql`e.failing_since`)} as "failingSince"`)
  const claimed = rows as unknown as Claimed[]
  const turn = ({ asked, attempt }: Claimed) => (asked ? 0 : Math.min(attempt, 2))
  return claimed.sort((a, b) => turn(a) - turn(b) || a.dueAt - b.dueAt)
}

/** What became of a claimed delivery. `pending` gives it back: the attempt was not made. */
export interface Settlement {
  id: string
  claim: string
  status: 'success' | 'failure' | 'skipped' | 'pending'
  code?: number
  headers?: Record<string, string>
  body?: string
  errorCode?: string
  errorMessage?: string
  /** Epoch milliseconds by the database's clock. */
  attemptedAt?: number
  /**
   * After a failure, the next attempt is due so much later; absent after the last. With `pending`, nobody takes it for so long:
   * it stays due, so that it is seen to be late.
   */
  delayMs?: number
}

/**
 * Records results and plans the next attempts, for those alone whose claim still holds: what was recorded already, was taken
 * over by another sender or deleted stays as it is. The endpoint is locked first, as who deletes it does; "is true" keeps the
 * planner from going through all its pending rows instead of along the primary key.
 * Returns how many were recorded and in how many milliseconds the first planned attempt is due.
 */
export async function settle(
  db: Runner,
  now: SQL,
  endpointId: string,
  settlements: readonly Settlement[],
): Promise<{ recorded: number; nextMs: number | null }> {
  const { rows } = await db.execute(sql`
    with endpoint as (
      select id, enabled from ${webhookEndpoints} where id = ${endpointId} for key share
    ), result as (
      select * from json_to_recordset(${JSON.stringify(settlements)}::json) as r(
        id uuid, claim uuid, status text, code int, headers json, body text, "errorCode" text, "errorMessage" text,
        "attemptedAt" float8, "delayMs" int)
    ), done as (
      update ${webhookDeliveries} d
      set status = r.status, claim = null,
        lease_until = case when r.status = 'pending' then ${now} + ${ms(sql`r."delayMs"`)} end,
        claims = d.claims - case when r.status = 'pending' then 1 else 0 end,
        response_code = coalesce(r.code, 0), response_headers = coalesce(r.headers, '{}'), response_body = coalesce(r.body, ''),
        error_code = r."errorCode", error_message = r."errorMessage",
        attempted_at = to_timestamp(r."attemptedAt" / 1000)
      from result r, endpoint e
      where d.id = r.id and (d.endpoint_id = e.id) is true and d.claim = r.claim and d.status = 'pending'
      returning d.message_id, d.event_id, d.endpoint_id, d.trigger, d.attempt, d.status, r."delayMs", e.enabled
    ), retries as (
      insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, attempt, status, error_code, next_at, created_at)
      select message_id, event_id, endpoint_id, trigger, attempt + 1, case when enabled then 'pending' else 'skipped' end,
        case when enabled then null else 'endpoint_disabled' end,
        ${now} + case when enabled then ${ms(sql`"delayMs"`)} else interval '0' end, ${now}
      from done where status = 'failure' and "delayMs" is not null
      on conflict do nothing
    ), outcome as (
      select endpoint_id, bool_or(status = 'success') as succeeded from done where status in ('success', 'failure') group by 1
    ), health as (
      update ${webhookEndpoints} e set failing_since = case when succeeded then null else ${now} end
      from outcome where e.id = endpoint_id and succeeded = (e.failing_since is not null)
    )
    select count(*)::int as recorded, min("delayMs") as "nextMs" from done`)
  const [row] = rows as unknown as [{ recorded: number; nextMs: number | null }]
  return row
}

/** More than senders hold of an endpoint at a time: behind so many leased rows there is one that is not. */
const HELD_MAX = 100

/** In how many milliseconds the endpoint's next delivery can be claimed; undefined when none is pending. */
export async function nextDueMs(db: Runner, now: SQL, endpointId: string): Promise<number | undefined> {
  const first = (which: SQL) => sql`(select next_at, lease_until from ${webhookDeliveries} d
    where endpoint_id = ${endpointId} and ${which} and status = 'pending' order by next_at limit ${HELD_MAX})`
  const { rows } = await db.execute(sql`
    select ceil(${epochMs(sql`min(greatest(next_at, lease_until)) - ${now}`)})::float8 as ms
    from (${first(sql`(d.attempt > 1) is false`)} union all ${first(sql`(d.attempt > 1) is true`)}) first`)
  const value = rows[0]?.ms
  return typeof value === 'number' ? value : undefined
}

/** Nothing will happen when it would have been due. */
const skipped = (now: SQL) =>
  sql`status = 'skipped', error_code = 'endpoint_disabled', next_at = least(d.next_at, ${now})`

export interface Disabling {
  reason: string
  /** Where the answer came from: an endpoint that has another URL by now is spared. */
  url: string
  /** Only if no attempt has succeeded for so long; 0 for whatever it did. */
  failingForMs: number
  requestId: string
}

/** No event reaches the endpoint any more; what is pending is skipped, but for attempts that are being made. */
export async function disable(db: Runner, now: SQL, endpointId: string, disabling: Disabling): Promise<boolean> {
  const { reason, url, failingForMs, requestId } = disabling
  const { rows } = await db.execute(sql`
    with endpoint as (
      update ${webhookEndpoints} set enabled = false
      where id = ${endpointId} and enabled and url = ${url}
        and (${failingForMs}::float8 = 0 or failing_since <= ${now} - ${ms(failingForMs)})
      returning id, organization_id, project_ref
    ), skipped as (
      update ${webhookDeliveries} d set ${skipped(now)}
      from endpoint e where ${unclaimedOf(sql`e.id`, now)}
    )
    insert into ${auditLog} (action, organization_id, project_ref, detail, request_id, created_at)
    select 'webhook.endpoint.disable', organization_id, project_ref, json_build_object('endpoint', id, 'reason', ${reason}::text),
      ${requestId}, ${now} from endpoint
    returning id`)
  return rows.length > 0
}

export async function isGone(db: Runner, endpointId: string): Promise<boolean> {
  const { rows } = await db.execute(sql`select from ${webhookEndpoints} where id = ${endpointId}`)
  return rows.length === 0
}

const CLEARED_MAX = 5_000

/** Deletes the endpoint's deliveries, a few thousand a statement, but for those that somebody holds. */
export async function clearLog(db: Runner, now: SQL, endpointId: string): Promise<void> {
  for (let full = true; full; ) {
    const { rows } = await db.execute(sql`
      with free as (
        select id from ${webhookDeliveries}
        where endpoint_id = ${endpointId} and (status <> 'pending' or lease_until is null or lease_until <= ${now})
        order by id limit ${CLEARED_MAX} for update skip locked
      ), gone as (
        delete from ${webhookDeliveries} d using free where d.id = free.id returning d.id
      )
      select count(*) = ${CLEARED_MAX} as full from gone`)
    full = rows[0]?.full === true
  }
}

/** The pending deliveries of an endpoint that no sender holds. */
export const unclaimedOf = (endpointId: SQL, now: SQL): SQL =>
  sql`d.endpoint_id = ${endpointId} and d.status = 'pending' and (d.claim is null or d.lease_until <= ${now})`

/** What was enqueued before an endpoint was disabled is told as skipped and stays so; attempts that are being made come to their end. */
export const skipPending = (tx: Pick<Writer, 'execute'>, now: SQL, endpointId: string) =>
  tx.execute(sql`update ${webhookDeliveries} d set ${skipped(now)}
    where ${unclaimedOf(sql`${endpointId}`, now)}`)

/** Endpoints with deliveries that are overdue by more than the grace, after `after` in the order of their ids. */
export async function overdueEndpoints(
  db: Runner,
  now: SQL,
  { graceMs, after, count }: { graceMs: number; after: string; count: number },
): Promise<string[]> {
  // The order keeps Postgres on the index, where it would else read the whole table for every endpoint.
  const overdue = (which: SQL) => sql`(select from ${webhookDeliveries} d
    where ${which} and d.next_at <= ${now} - ${ms(graceMs)} and ${unclaimedOf(sql`waiting.id`, now)}
    order by d.next_at limit 1)`
  // From one endpoint with pending rows to the next along the index, and in it straight to what is due.
  const { rows } = await db.execute(sql`
    with recursive waiting(id) as (
      (select endpoint_id from ${webhookDeliveries} where status = 'pending' and endpoint_id > ${after} order by endpoint_id limit 1)
      union all
      select (select d.endpoint_id from ${webhookDeliveries} d
        where d.status = 'pending' and d.endpoint_id > waiting.id order by d.endpoint_id limit 1)
      from waiting where waiting.id is not null
    )
    select id from waiting where id is not null and exists (${overdue(sql`(d.attempt > 1) is false`)} union all ${overdue(sql`(d.attempt > 1) is true`)})
    limit ${count}`)
  return rows.map(({ id }) => id as string)
}

export interface Backlog {
  due: number
  /** Of endpoints that do not fail: those of the others wait for their receivers, not for us. */
  oldestDueMs: number
}

const COUNTED_MAX = 100_000

/** What is due now; counted up to 100,000. */
export async function backlog(db: Runner, now: SQL): Promise<Backlog> {
  const { rows } = await db.execute(sql`
    select count(*)::int as due,
      coalesce(${epochMs(sql`${now} - min(next_at) filter (where e.failing_since is null)`)}, 0) as "oldestDueMs"
    from (select endpoint_id, next_at from ${webhookDeliveries}
      where status = 'pending' and next_at <= ${now} limit ${COUNTED_MAX}) due
    join ${webhookEndpoints} e on e.id = due.endpoint_id`)
  const [row] = rows as unknown as [Backlog]
  return row
}

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

/** Runs one statement. Each statement below is a transaction of its own. */
export interface Runner {
  execute(query: SQL): PromiseLike<{ rows: Record<string, unknown>[] }>
}

/** A delivery leased by this sender, with the current state of its endpoint. */
export interface ClaimedDelivery {
  id: string
  claim: string
  messageId: string
  endpointId: string
  attempt: number
  trigger: DeliveryTrigger
  asked: boolean
  claims: number
  type: string
  /** Null if the event has expired, which can happen while a receiver is down for long. */
  payload: string | null
  /** Epoch milliseconds of the database's clock, as are the other times. */
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

/** Longer than an attempt takes, including name resolution, response and recording. */
const LEASE_MS = 35_000

const epochMs = (value: SQL) => sql`(extract(epoch from ${value}) * 1000)::float8`
const ms = (value: number | SQL) => sql`${value} * interval '1 millisecond'`

/** A retry overdue by this time is no longer ordered after first attempts, which could otherwise starve it. */
const RETRY_STARVATION_MS = 60_000

/**
 * Leases up to `count` due deliveries of the endpoint: first those requested by a user, then first attempts, then retries. It is
 * idempotent per `claim`: a repeated call returns the rows that it leased before.
 */
export async function claimDue(
  db: Runner,
  now: SQL,
  endpointId: string,
  claim: string,
  count: number,
): Promise<ClaimedDelivery[]> {
  const free = sql`d.status = 'pending' and d.next_at <= ${now}
    and (d.lease_until is null or d.lease_until <= ${now} or d.claim = ${claim})`
  // Each branch uses its own range of the index, so that a backlog is not sorted.
  const oldest = (condition: SQL) => sql`(select d.id from ${webhookDeliveries} d
    where d.endpoint_id = ${endpointId} and ${condition} and ${free} order by d.next_at limit ${count})`
  const { rows } = await db.execute(sql`
    with candidates as (
      ${oldest(sql`d.asked`)} union ${oldest(sql`(d.attempt > 1) is false`)} union ${oldest(sql`(d.attempt > 1) is true`)}
    ), due as (
      select d.id, d.event_id, d.claim as before from candidates join ${webhookDeliveries} d using (id)
      where ${free}
      order by d.asked desc, (d.attempt > 1 and d.next_at > ${now} - ${ms(RETRY_STARVATION_MS)}), d.next_at
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
  const claimed = rows as unknown as ClaimedDelivery[]
  const priority = ({ asked, attempt }: ClaimedDelivery) => (asked ? 0 : Math.min(attempt, 2))
  return claimed.sort((a, b) => priority(a) - priority(b) || a.dueAt - b.dueAt)
}

/** The result of a claimed delivery. `pending` releases it without an attempt. */
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
   * After a failure, the delay until the next attempt; absent after the last. With `pending`, the time for which it cannot be claimed:
   * it stays due, so that its delay is visible.
   */
  delayMs?: number
}

/**
 * Records results and plans the next attempts for deliveries whose claim is still valid; rows that were recorded, taken over or
 * deleted stay unchanged. Locks the endpoint first, in the same order as its deletion. "is true" makes the planner use the primary
 * key instead of scanning all pending rows.
 * Returns the number recorded and the milliseconds until the first planned attempt.
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

/** More than senders can lease of an endpoint at a time, so that a row without a lease is among them. */
const HELD_MAX = 100

/** Returns the milliseconds until the endpoint's next delivery can be claimed; undefined if none is pending. */
export async function nextDueMs(db: Runner, now: SQL, endpointId: string): Promise<number | undefined> {
  const first = (condition: SQL) => sql`(select next_at, lease_until from ${webhookDeliveries} d
    where endpoint_id = ${endpointId} and ${condition} and status = 'pending' order by next_at limit ${HELD_MAX})`
  const { rows } = await db.execute(sql`
    select ceil(${epochMs(sql`min(greatest(next_at, lease_until)) - ${now}`)})::float8 as ms
    from (${first(sql`(d.attempt > 1) is false`)} union all ${first(sql`(d.attempt > 1) is true`)}) first`)
  const value = rows[0]?.ms
  return typeof value === 'number' ? value : undefined
}

/** Marks deliveries as skipped. */
const skippedColumns = (now: SQL) =>
  sql`status = 'skipped', error_code = 'endpoint_disabled', next_at = least(d.next_at, ${now})`

export interface Disabling {
  reason: string
  /** The URL that answered: an endpoint whose URL has changed is not disabled. */
  url: string
  /** Disables only if no attempt has succeeded for this time; 0 for always. */
  failingForMs: number
  requestId: string
}

/** Disables the endpoint and skips its pending deliveries, except active attempts. */
export async function disable(db: Runner, now: SQL, endpointId: string, disabling: Disabling): Promise<boolean> {
  const { reason, url, failingForMs, requestId } = disabling
  const { rows } = await db.execute(sql`
    with endpoint as (
      update ${webhookEndpoints} set enabled = false
      where id = ${endpointId} and enabled and url = ${url}
        and (${failingForMs}::float8 = 0 or failing_since <= ${now} - ${ms(failingForMs)})
      returning id, organization_id, project_ref
    ), skipped as (
      update ${webhookDeliveries} d set ${skippedColumns(now)}
      from endpoint e where ${unclaimedOf(sql`e.id`, now)}
    )
    insert into ${auditLog} (action, organization_id, project_ref, detail, request_id, created_at)
    select 'webhook.endpoint.disable', organization_id, project_ref, json_build_object('endpoint', id, 'reason', ${reason}::text),
      ${requestId}, ${now} from endpoint
    returning id`)
  return rows.length > 0
}

export async function isDeleted(db: Runner, endpointId: string): Promise<boolean> {
  const { rows } = await db.execute(sql`select from ${webhookEndpoints} where id = ${endpointId}`)
  return rows.length === 0
}

const CLEARED_MAX = 5_000

/** Deletes the endpoint's deliveries in batches, except leased ones. */
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

/** The pending deliveries of an endpoint without a lease. */
export const unclaimedOf = (endpointId: SQL, now: SQL): SQL =>
  sql`d.endpoint_id = ${endpointId} and d.status = 'pending' and (d.claim is null or d.lease_until <= ${now})`

/** Skips pending deliveries of a disabled endpoint permanently; active attempts finish. */
export const skipPending = (tx: Pick<Writer, 'execute'>, now: SQL, endpointId: string) =>
  tx.execute(sql`update ${webhookDeliveries} d set ${skippedColumns(now)}
    where ${unclaimedOf(sql`${endpointId}`, now)}`)

/** Lists endpoints with deliveries overdue by more than the grace period, by id after `after`. */
export async function overdueEndpoints(
  db: Runner,
  now: SQL,
  { graceMs, after, count }: { graceMs: number; after: string; count: number },
): Promise<string[]> {
  // The order makes Postgres use the index instead of scanning the table for every endpoint.
  const overdue = (condition: SQL) => sql`(select from ${webhookDeliveries} d
    where ${condition} and d.next_at <= ${now} - ${ms(graceMs)} and ${unclaimedOf(sql`waiting.id`, now)}
    order by d.next_at limit 1)`
  // A loose index scan over endpoints with pending rows, which reads only due rows of each.
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
  /** The age of the oldest due delivery of endpoints that do not fail; the others wait for their receivers. */
  oldestDueMs: number
}

const COUNTED_MAX = 100_000

/** Counts due deliveries, up to 100,000. */
export async function readBacklog(db: Runner, now: SQL): Promise<Backlog> {
  const { rows } = await db.execute(sql`
    select count(*)::int as due,
      coalesce(${epochMs(sql`${now} - min(next_at) filter (where e.failing_since is null)`)}, 0) as "oldestDueMs"
    from (select endpoint_id, next_at from ${webhookDeliveries}
      where status = 'pending' and next_at <= ${now} limit ${COUNTED_MAX}) due
    join ${webhookEndpoints} e on e.id = due.endpoint_id`)
  const [row] = rows as unknown as [Backlog]
  return row
}

import { type SQL, sql } from 'drizzle-orm'
import { type BackendType, logDrainEntries, logDrains } from '../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../platform/db/client.ts'
import { LOG_SOURCES, type LogSource } from '../logs/rows.ts'
import type { LogRow } from './backend.ts'

type Db = Pick<Writer, 'execute'>

/** Longer than a batch and its statements can take. */
const LEASE_MS = 60_000
const ROWS_MAX = 1_000
const BYTES_MAX = 1024 * 1024
export const ENTRIES_MAX = 250

export interface ClaimedDrain {
  id: string
  claim: string
  projectRef: string
  backendType: BackendType
  config: Record<string, unknown>
  sealedSecrets: string
  failures: number
  /** Epoch milliseconds; null if the last batch was accepted. */
  failingSince: number | null
}

const milliseconds = (ms: number): SQL => sql`${ms} * interval '1 ms'`

/** Leases a drain; undefined if it is not due or another sender has the lease. */
export async function claimDrain(db: Db, now: SQL, id: string): Promise<ClaimedDrain | undefined> {
  const claim = crypto.randomUUID()
  const [claimed] = await rowsOf<ClaimedDrain>(
    db,
    sql`update ${logDrains} set claim = ${claim}::uuid, lease_until = ${now} + ${milliseconds(LEASE_MS)}
      where id = ${id}::uuid and deleted_at is null and next_at <= ${now} and (lease_until is null or lease_until <= ${now})
      returning id, claim, project_ref as "projectRef", backend_type as "backendType", config,
        sealed_secrets as "sealedSecrets", failures,
        floor(extract(epoch from failing_since) * 1000)::float8 as "failingSince"`,
  )
  return claimed
}

export interface Entry {
  id: string
  rows: number
}

export interface Pending {
  /** The entries in order. */
  entries: Entry[]
  /** The rows of the entries. Entries whose records were purged have none. */
  rows: (LogRow & { entry: string })[]
  /** True if more entries may be pending. */
  isFull: boolean
}

/** Reads up to `count` of the oldest entries after `after` within the size limits, with their rows, in one round trip. */
export async function readPending(
  db: Db,
  drainId: string,
  { after, count }: { after: string | undefined; count: number },
): Promise<Pending> {
  const later = after === undefined ? sql`true` : sql`id > ${after}::uuid`
  const [row] = await rowsOf<{ entries: Entry[] | null; rows: Pending['rows'] | null; waiting: number }>(
    db,
    sql`with waiting as materialized (
        select *, row_number() over w as place, sum(rows) over w as rows_so_far, sum(bytes) over w as bytes_so_far
        from (select * from ${logDrainEntries} where drain_id = ${drainId}::uuid and ${later} order by id limit ${count}) e
        window w as (order by id rows unbounded preceding)
      ), picked as materialized (
        select * from waiting where place = 1 or (rows_so_far <= ${ROWS_MAX} and bytes_so_far <= ${BYTES_MAX})
      ), found as (${ROWS})
      select (select count(*)::int from waiting) as waiting,
        (select json_agg(json_build_object('id', id, 'rows', rows) order by place) from picked) as entries,
        (select json_agg(json_build_object('entry', entry, 'id', id, 'timestamp',
          to_char(timestamp at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'source', source,
          'severity_text', severity_text, 'event_message', event_message, 'log_attributes', log_attributes)
          order by place, source_place, line) from found) as rows`,
  )
  const { entries, rows, waiting = 0 } = row ?? {}
  const picked = entries ?? []
  return { entries: picked, rows: rows ?? [], isFull: waiting === count || picked.length < waiting }
}

/** Joins records of each kind with their entries; `line` is the number of a log line. */
const JOINS: Record<LogSource['of'], { on: SQL; line: SQL }> = {
  call: { on: sql`p.kind = 'call' and p.record_id = i.id`, line: sql`0` },
  line: {
    on: sql`p.kind in ('call', 'lines') and p.record_id = i.id and l.number > p.first_line and l.number <= p.last_line`,
    line: sql`l.number::int`,
  },
  build: { on: sql`p.kind = 'build' and p.record_id = t.id`, line: sql`0` },
  run_line: { on: sql`p.kind = 'run_line' and p.record_id = l.id`, line: sql`0` },
  postgres_log: { on: sql`p.kind = 'postgres_log' and p.record_id = g.id`, line: sql`0` },
  storage_request: { on: sql`p.kind = 'storage_request' and p.record_id = s.id`, line: sql`0` },
  data_api_request: { on: sql`p.kind = 'data_api_request' and p.record_id = d.id`, line: sql`0` },
}

const ROWS = sql.join(
  LOG_SOURCES.map(
    ({ of, columns, from, where }, place) =>
      sql`select p.id as entry, p.place, ${place}::int as source_place, ${JOINS[of].line} as line, ${columns}
        from ${from} cross join picked p where ${where} and ${JOINS[of].on}`,
  ),
  sql` union all `,
)

const isClaimedBy = ({ id, claim }: ClaimedDrain): SQL => sql`id = ${id}::uuid and claim = ${claim}::uuid`

/**
 * Deletes sent and dropped entries and renews the lease. Returns false if another sender has taken over: the drain may have a new
 * destination that accepts the dropped entries, so those stay.
 */
export async function recordSent(
  db: Db,
  now: SQL,
  drain: ClaimedDrain,
  { sent, dropped }: { sent: readonly string[]; dropped: readonly string[] },
): Promise<boolean> {
  const [row] = await rowsOf<{ kept: number }>(
    db,
    sql`with kept as (
        update ${logDrains} set failures = 0, failing_since = null, lease_until = ${now} + ${milliseconds(LEASE_MS)}
        where ${isClaimedBy(drain)} returning id
      ), gone as (
        delete from ${logDrainEntries} where drain_id = ${drain.id}::uuid and (id = any(${sql.param([...sent])}::uuid[])
          or (id = any(${sql.param([...dropped])}::uuid[]) and exists (select from kept)))
      )
      select count(*)::int as kept from kept`,
  )
  return row?.kept === 1
}

/** Renews the lease; returns false if another sender has taken over. */
export async function renewDrainLease(db: Db, now: SQL, drain: ClaimedDrain): Promise<boolean> {
  const kept = await rowsOf(
    db,
    sql`update ${logDrains} set lease_until = ${now} + ${milliseconds(LEASE_MS)} where ${isClaimedBy(drain)} returning id`,
  )
  return kept.length === 1
}

/** Records a failure and postpones the next batch. */
export const recordFailure = (db: Db, now: SQL, drain: ClaimedDrain, delayMs: number) =>
  db.execute(sql`update ${logDrains} set failures = failures + 1, failing_since = coalesce(failing_since, ${now}),
    next_at = ${now} + ${milliseconds(delayMs)}, lease_until = null where ${isClaimedBy(drain)}`)

/** Releases the drain, which is due again after the delay. */
export const release = (db: Db, now: SQL, drain: ClaimedDrain, delayMs: number) =>
  db.execute(sql`update ${logDrains} set next_at = ${now} + ${milliseconds(delayMs)}, lease_until = null
    where ${isClaimedBy(drain)}`)

/** Selects the ids of due drains with pending entries. */
export async function dueDrains(db: Db, now: SQL, { after, count }: { after: string; count: number }) {
  const rows = await rowsOf<{ id: string }>(
    db,
    // A loose index scan over drains with entries: most drains have none and are not read.
    sql`with recursive waiting (id) as (
        (select drain_id from ${logDrainEntries} where drain_id > ${after}::uuid order by drain_id limit 1)
        union all
        select (select e.drain_id from ${logDrainEntries} e where e.drain_id > w.id order by e.drain_id limit 1)
          from waiting w where w.id is not null
      )
      select due.id from waiting w cross join lateral (
        select d.id from ${logDrains} d where d.id = w.id and deleted_at is null and next_at <= ${now}
          and (lease_until is null or lease_until <= ${now}) offset 0) due limit ${count}`,
  )
  return rows.map(({ id }) => id)
}

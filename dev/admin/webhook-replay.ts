import { type SQL, sql } from 'drizzle-orm'
import {
  type DeliveryStatus,
  webhookDeliveries,
  webhookEndpoints,
  webhookEvents,
} from '../../src/model/tables/index.ts'
import { RETENTION_MS } from '../../src/outbound/webhooks/purge.ts'
import { DATABASE_CLOCK } from '../../src/platform/db/database-clock.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change, type Transaction } from './change.ts'
import { DAY_MS, type Options } from './command.ts'
import { readTime } from './time.ts'

const MESSAGES_MAX = 10_000
const ENDED = ['failure', 'skipped', 'success'] as const satisfies readonly DeliveryStatus[]
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

interface Replay {
  endpointId: string
  since: Date
  /** Exclusive end of the range; null for no end. */
  until: Date | null
  statuses: readonly DeliveryStatus[]
  dryRun: boolean
}

export function readReplay(endpointId: string, options: Options, now: Date): Replay {
  if (!UUID.test(endpointId)) throw unknownEndpoint(endpointId)
  if (options.since === undefined) throw new StartError('--since is missing: the time of the first event to send again')
  const since = readTime('--since', options.since)
  const until = options.until === undefined ? null : readTime('--until', options.until)
  if (since >= (until ?? now)) throw new StartError(`--since ${options.since} is not before ${options.until ?? 'now'}`)
  if (since.getTime() < now.getTime() - RETENTION_MS)
    throw new StartError(`--since is more than ${RETENTION_MS / DAY_MS} days ago: older deliveries are not kept`)
  return { endpointId, since, until, statuses: readStatuses(options.status), dryRun: options['dry-run'] ?? false }
}

function readStatuses(text: string | undefined): readonly DeliveryStatus[] {
  if (text === undefined) return ['failure', 'skipped']
  if (text === 'all') return ENDED
  const status = ENDED.find((known) => known === text)
  if (!status) throw new StartError(`--status ${text} is not one of ${ENDED.join(', ')}, all`)
  return [status]
}

const unknownEndpoint = (id: string) => new StartError(`no webhook endpoint has the id "${id}"`)

interface Found {
  messages: number
  chosen: number
  first: string | null
  last: string | null
  /** Time of the first event beyond MESSAGES_MAX. */
  next: string | null
}

/**
 * Starts a new delivery, with the whole schedule of retries, for each message whose last delivery ended with one of the statuses.
 * Messages with a pending delivery are skipped. Messages keep their ids, so receivers can recognize duplicates.
 */
export function replay(db: ControlDb, requested: Replay): Promise<string> {
  const { endpointId, since, until, statuses } = requested
  return change(db, async ({ tx, trace }) => {
    const endpoint = await lockEndpoint(tx, endpointId)
    const { rows } = await tx.execute(replayQuery(requested))
    const [found] = rows as unknown as [Found]
    if (requested.dryRun)
      return ['Nothing was changed.', `messages that would be sent again: ${found.chosen}`, ...rangeLines(found)].join(
        '\n',
      )
    if (found.chosen > 0) {
      const detail = { endpoint: endpointId, since, until, statuses, messages: found.chosen }
      await trace({ action: 'webhook.endpoint.replay', ...endpoint, detail })
    }
    return [
      `messages sent again: ${found.chosen}${found.chosen > 0 ? ' (the first go out within 15 s)' : ''}`,
      ...rangeLines(found),
    ].join('\n')
  })
}

function rangeLines({ messages, chosen, first, last, next }: Found): string[] {
  const lines = first === null ? [] : [`first  ${first}`, `last   ${last}`]
  if (next === null) return lines
  return [...lines, `${messages - chosen} more do not fit into one replay: go on with --since ${next}`]
}

/** Locks the endpoint, so that it is not deleted before the transaction ends. */
async function lockEndpoint(tx: Transaction, id: string) {
  const { rows } = await tx.execute(sql`
    select enabled, organization_id as "organizationId", project_ref as "projectRef"
    from ${webhookEndpoints} where id = ${id} for key share`)
  const [endpoint] = rows as unknown as { enabled: boolean; organizationId: string; projectRef: string | null }[]
  if (!endpoint) throw unknownEndpoint(id)
  if (!endpoint.enabled) throw new StartError('the endpoint is disabled: enable it first (PATCH, "enabled": true)')
  const { organizationId, projectRef } = endpoint
  return { organizationId, projectRef }
}

function replayQuery({ endpointId, since, until, statuses, dryRun }: Replay): SQL {
  const instant = (at: Date) => sql`${at.toISOString()}::timestamptz`
  const shownTime = (at: SQL) => sql`to_char(${at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
  const eventText = (at: SQL) => sql`
    (select ${shownTime(sql`published_at`)} || '  ' || type || '  ' || message_id from chosen where place = ${at})`
  const insert = dryRun
    ? sql`select message_id from chosen`
    : sql`insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, next_at, created_at)
      select message_id, event_id, ${endpointId}, 'replay', ${DATABASE_CLOCK}, ${DATABASE_CLOCK} from chosen order by place
      on conflict (message_id) where status = 'pending' do nothing
      returning message_id`
  // A delivery is never older than its event, so older rows than the range can be skipped.
  return sql`
    with last as (
      select distinct on (message_id) message_id, event_id, status from ${webhookDeliveries}
      where endpoint_id = ${endpointId} and created_at >= ${instant(since)}
      order by message_id, id desc
    ), found as (
      select message_id, event_id, v.type, v.published_at, row_number() over (order by v.published_at, message_id) as place
      from last join ${webhookEvents} v on v.id = last.event_id
      where status in (${sql.join(
        statuses.map((status) => sql`${status}`),
        sql`, `,
      )})
        and v.payload ->> 'is_test' is distinct from 'true'
        and v.published_at >= ${instant(since)} and ${until ? sql`v.published_at < ${instant(until)}` : sql`true`}
    ), chosen as (
      select * from found where place <= ${MESSAGES_MAX}
    ), taken as (
      ${insert}
    )
    select (select count(*)::int from found) as messages, (select count(*)::int from taken) as chosen,
      ${eventText(sql`1`)} as first, ${eventText(sql`(select max(place) from chosen)`)} as last,
      (select ${shownTime(sql`published_at`)} from found where place = ${MESSAGES_MAX + 1}) as next`
}

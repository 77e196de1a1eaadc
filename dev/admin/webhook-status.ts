import { sql } from 'drizzle-orm'
import { organizations, webhookDeliveries, webhookEndpoints } from '../../src/model/tables/index.ts'
import { newTimedId } from '../../src/platform/db/id.ts'
import type { ControlDb } from '../seed.ts'
import { DAY_MS, type Report } from './command.ts'

/** Limit for overdue deliveries: the sweeper wakes a sender within 15 s, so a longer delay means a problem. */
const LATE_SECONDS = 60
const SHOWN_MAX = 50

interface Figures {
  due: number
  later: number
  overdueSeconds: number | null
  outcomes: Record<string, number>
  firstP50Ms: number | null
  firstP99Ms: number | null
  attemptSecondsAgo: number | null
}
interface EndpointFigures extends Figures {
  id: string
  organization: string
  projectRef: string | null
  url: string
  enabled: boolean
  failingSince: string | null
}
interface Totals extends Figures {
  endpoints: number
  disabled: number
  shown: number
}

export async function webhookStatus(db: ControlDb, organizationId?: string): Promise<Report> {
  const [row] = (await db.execute(statusQuery(organizationId))).rows as unknown as [
    { totals: Totals; endpoints: EndpointFigures[] },
  ]
  const { totals, endpoints } = row
  const late = (totals.overdueSeconds ?? 0) > LATE_SECONDS
  const more = totals.shown - endpoints.length
  const lines = [
    ...endpoints.flatMap(endpointLines),
    ...(more > 0 ? [`${more} more endpoints have something pending or failing`] : []),
    `endpoints  ${totals.endpoints}, disabled ${totals.disabled}`,
    ...figureLines(totals),
    late ? `LATE: ${lateText(totals)}` : `sweeper    nothing is overdue by more than ${LATE_SECONDS} s`,
  ]
  return { text: lines.join('\n'), exitCode: late ? 1 : 0 }
}

const lateText = ({ overdueSeconds, attemptSecondsAgo }: Totals) =>
  `the oldest delivery is overdue by ${overdueSeconds} s. ${
    attemptSecondsAgo === null
      ? 'Nothing was sent within the last hour: is the Worker running, and its cron?'
      : `The last attempt was made ${Math.max(0, attemptSecondsAgo)} s ago: if more attempts follow, a receiver is slow or does not answer.`
  }`

function endpointLines({ id, organization, projectRef, url, ...rest }: EndpointFigures): string[] {
  const { enabled, failingSince, ...figures } = rest
  const failing = failingSince === null ? '' : `  failing since ${failingSince}`
  const owner = projectRef === null ? organization : `${organization}/${projectRef}`
  // The query of a URL often contains a credential.
  const { host, pathname } = new URL(url)
  return [
    `${id}  ${owner}  ${host}${pathname}${enabled ? '' : '  disabled'}${failing}`,
    ...figureLines(figures).map((line) => `  ${line}`),
    '',
  ]
}

function figureLines({ due, later, overdueSeconds, outcomes, firstP50Ms, firstP99Ms }: Figures): string[] {
  const overdue = overdueSeconds === null ? '' : `; the oldest is overdue by ${overdueSeconds} s`
  const tried = Object.entries(outcomes).map(([outcome, count]) => `${outcome} ${count}`)
  const first = firstP50Ms === null ? '' : `; first attempt after p50 ${firstP50Ms} ms, p99 ${firstP99Ms} ms`
  return [`pending    ${due} due, ${later} later${overdue}`, `last hour  ${tried.join(', ') || 'no attempts'}${first}`]
}

/**
 * Reads everything in one statement. Pending rows come from a partial index, the attempts of the last hour from the primary key
 * of the last day: an attempt may be much later than its row. A backlog older than a day shows in `pending`.
 */
function statusQuery(organizationId?: string) {
  const dayAgo = newTimedId(new Date(Date.now() - DAY_MS))
  const ofOrganization = organizationId === undefined ? sql`true` : sql`organization_id = ${organizationId}`
  return sql`
    with endpoint as materialized (
      select id, organization_id, project_ref, url, enabled, failing_since from ${webhookEndpoints} where ${ofOrganization}
    ), pending as (
      select endpoint_id, count(*) filter (where next_at <= now()) as due, count(*) filter (where next_at > now()) as later,
        floor(extract(epoch from now() - min(next_at) filter (where next_at <= now()))) as overdue
      from ${webhookDeliveries} where status = 'pending' group by endpoint_id
    ), attempt as (
      select endpoint_id, attempted_at, coalesce(error_code, status) as outcome,
        -- A first attempt is due when it is written; one that a user brought forward is not.
        case when trigger = 'event' and next_at = created_at then extract(epoch from attempted_at - created_at) * 1000 end as first_ms
      from ${webhookDeliveries}
      where id >= ${dayAgo} and attempted_at > now() - interval '1 hour' and endpoint_id in (select id from endpoint)
    ), timing as (
      select endpoint_id, floor(extract(epoch from now() - max(attempted_at))) as ago,
        percentile_disc(0.5) within group (order by first_ms) as p50, percentile_disc(0.99) within group (order by first_ms) as p99
      from attempt group by grouping sets ((endpoint_id), ())
    ), outcome as (
      select endpoint_id, json_object_agg(outcome, attempts order by attempts desc) as outcomes,
        bool_or(outcome <> 'success') as failing
      from (
        select endpoint_id, outcome, count(*) as attempts from attempt group by grouping sets ((endpoint_id, outcome), (outcome))
      ) counted group by endpoint_id
    ), shown as (
      select e.id, g.slug as organization, e.project_ref as "projectRef", e.url, e.enabled, e.failing_since as "failingSince", coalesce(p.due, 0) as due, coalesce(p.later, 0) as later,
        p.overdue as "overdueSeconds", coalesce(o.outcomes, '{}') as outcomes, t.p50 as "firstP50Ms", t.p99 as "firstP99Ms",
        t.ago as "attemptSecondsAgo", count(*) over () as shown
      from endpoint e join ${organizations} g on g.id = e.organization_id
        left join pending p on p.endpoint_id = e.id left join outcome o on o.endpoint_id = e.id
        left join timing t on t.endpoint_id = e.id
      where p.endpoint_id is not null or o.failing or e.failing_since is not null
      order by p.overdue desc nulls last, e.id limit ${SHOWN_MAX}
    ), total as (
      select (select count(*) from endpoint) as endpoints, (select count(*) from endpoint where not enabled) as disabled,
        coalesce((select max(shown) from shown), 0) as shown, coalesce(sum(due), 0) as due, coalesce(sum(later), 0) as later,
        max(overdue) as "overdueSeconds", coalesce((select outcomes from outcome where endpoint_id is null), '{}') as outcomes,
        max(t.p50) as "firstP50Ms", max(t.p99) as "firstP99Ms", max(t.ago) as "attemptSecondsAgo"
      from pending p join endpoint e on e.id = p.endpoint_id right join timing t on t.endpoint_id is null
      where t.endpoint_id is null
    )
    select row_to_json(total) as totals, (select coalesce(json_agg(s), '[]') from shown s) as endpoints from total`
}

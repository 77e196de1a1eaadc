import { sql } from 'drizzle-orm'
import type { ControlDb } from '../../dev/seed.ts'
import { webhookAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { webhookEndpoints } from '../../src/model/tables/index.ts'
import { newTimedId } from '../../src/platform/db/id.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import { type SeededOrganization, seedOrganization } from '../seed.ts'

export interface Endpoint {
  id: string
  path: string
  projectRef: string
}

export interface Endpoints {
  organization: SeededOrganization
  endpoints: Endpoint[]
}

interface Options {
  slug: string
  count: number
  receiverUrl: string
  encryptionKey: string
}

const TYPE = 'v1.project.status.changed'
const PAYLOAD_FIELDS = { previous_status: 'COMING_UP', current_status: 'ACTIVE_HEALTHY' }

/** Creates an organization whose projects have one endpoint each, so that an event reaches one of them. */
export async function seedEndpoints(control: ControlDb, options: Options): Promise<Endpoints> {
  const { slug, count, receiverUrl, encryptionKey } = options
  const organization = await seedOrganization(control, slug, count)
  const { rows } = await control.execute<{ ref: string }>(
    sql`select ref from projects where organization_id = ${organization.id} order by ref`,
  )
  const endpoints = rows.map(({ ref }, n) => ({
    id: newTimedId(new Date()),
    path: `/${slug}/${n}`,
    projectRef: ref,
  }))
  const values = await Promise.all(
    endpoints.map(async ({ id, path, projectRef }) => ({
      id,
      organizationId: organization.id,
      projectRef,
      url: `${receiverUrl}${path}`,
      enabled: true,
      eventTypes: ['*' as const],
      sealedSecret: await seal(
        encryptionKey,
        `whsec_${btoa(`secret of ${slug}`)}`,
        webhookAssociatedData(id, 'secret'),
      ),
      createdBy: '00000000-0000-7000-8000-000000000000',
      createdAt: new Date(),
    })),
  )
  await control.insert(webhookEndpoints).values(values)
  return { organization, endpoints }
}

/** Inserts events with overdue deliveries, as if the queue had lost every message. Returns the time of the commit. */
export async function seedPending(
  control: ControlDb,
  { organization, endpoints }: Endpoints,
  perEndpoint: number,
): Promise<number> {
  const payload = JSON.stringify({
    organization_slug: organization.slug,
    project_ref: 'abcdefghijklmnopqrst',
    ...PAYLOAD_FIELDS,
    actor: null,
  })
  const ids = endpoints.map(({ id }) => id)
  await control.execute(sql`
    with wanted as materialized (
      select uuidv7() as event_id, endpoint_id, now() - interval '1 minute' as at
      from generate_series(1, ${perEndpoint}::int), unnest(${sql.param(ids)}::uuid[]) as endpoint_id
    ), events as (
      insert into webhook_events (id, organization_id, type, payload, published_at)
      select event_id, ${organization.id}, ${TYPE}, ${payload}::json, at from wanted
    )
    insert into webhook_deliveries (message_id, event_id, endpoint_id, trigger, next_at, created_at)
    select uuidv7(), event_id, endpoint_id, 'event', at, at from wanted`)
  const committedAt = Date.now()
  await control.execute(sql`vacuum analyze webhook_events, webhook_deliveries, webhook_endpoints`)
  return committedAt
}

/** The times at which the deliveries of the organization were published. The statement that commits them sets these, so none is later than the commit. */
export async function publishedAt(control: ControlDb, { organization }: Endpoints): Promise<Map<string, number>> {
  const { rows } = await control.execute<{ id: string; at: string }>(sql`
    select d.message_id as id, extract(epoch from v.published_at) * 1000 as at
    from webhook_deliveries d join webhook_events v on v.id = d.event_id where v.organization_id = ${organization.id}`)
  return new Map(rows.map(({ id, at }) => [id, Number(at)]))
}

/** Removes pending deliveries, except those that a sender is recording; returns their number. */
export async function removePending(control: ControlDb): Promise<number> {
  const { rowCount } = await control.execute(sql`delete from webhook_deliveries
    where id in (select id from webhook_deliveries where status = 'pending' for update skip locked)`)
  return rowCount ?? 0
}

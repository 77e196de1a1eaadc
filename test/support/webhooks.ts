import { and, asc, eq, sql } from 'drizzle-orm'
import { Webhook } from 'standardwebhooks'
import { Webhook as SvixWebhook } from 'svix'
import { expect, vi } from 'vitest'
import type { EventType } from '../../src/model/event-types.ts'
import { projects, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../src/model/tables/index.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import { type Caller, control, newOrganization, type Reply, type TestOrganization, tick } from './api.ts'
import type { Received } from './receiver.ts'
import { WAIT_MS } from './wait.ts'

export const KINDS = ['projects', 'organizations'] as const
export type Kind = (typeof KINDS)[number]

export const SECRET = `whsec_${Buffer.from('a secret of thirty-two bytes, yes').toString('base64')}`
export const UUID_V7 = /^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/
export const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
export const NOBODY = '00000000-0000-7000-8000-000000000000'
export const WAIT = { timeout: WAIT_MS }

/** The owner of the endpoints of a test, and the path before /endpoints and /deliveries. */
export interface Place {
  organization: TestOrganization
  ref: string | null
  base: string
  owner: Caller
}

export async function newPlace(kind: Kind, organization?: TestOrganization): Promise<Place> {
  const within = organization ?? (await newOrganization())
  const { owner, slug } = within
  if (kind === 'organizations')
    return { organization: within, ref: null, base: `/v2/organizations/${slug}/webhooks`, owner }
  return placeOf(within, await insertProject(within))
}

export const placeOf = (organization: TestOrganization, ref: string): Place => ({
  organization,
  ref,
  base: `/v2/projects/${ref}/webhooks`,
  owner: organization.owner,
})

/** Inserts only the row of a project, without a database and without an event. */
export async function insertProject(
  { id }: Pick<TestOrganization, 'id'>,
  { ref = randomLetters(), ...fields }: Partial<typeof projects.$inferInsert> = {},
) {
  await control.insert(projects).values({
    ref,
    organizationId: id,
    name: ref,
    region: 'us-east-1',
    instanceSize: 'nano',
    status: 'ACTIVE_HEALTHY',
    sealedPassword: 'none',
    sealedRunnerPassword: 'none',
    ...fields,
  })
  return ref
}

const endpointBody = (attributes: Record<string, unknown>) => ({ data: { type: 'endpoint', attributes } })

export const VALID = {
  url: 'http://127.0.0.1:9/hook',
  event_types: [{ type: '*' }],
  signing_secret: SECRET,
}

export const postEndpoint = (
  { owner, base }: Pick<Place, 'owner' | 'base'>,
  attributes: Record<string, unknown> = {},
): Promise<Reply> => owner.post(`${base}/endpoints`, endpointBody({ ...VALID, ...attributes }))

export async function newEndpoint(
  place: Pick<Place, 'owner' | 'base'>,
  attributes: Record<string, unknown> = {},
): Promise<string> {
  const reply = await postEndpoint(place, attributes)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.data.id as string
}

export const patchEndpoint = (
  { owner, base }: Pick<Place, 'owner' | 'base'>,
  id: string,
  attributes: Record<string, unknown>,
) => owner.patch(`${base}/endpoints/${id}`, endpointBody(attributes))

export const deliveriesOf = ({ owner, base }: Place, id: string, query = '') =>
  owner.get(`${base}/endpoints/${id}/deliveries${query}`)

export const sendTest = ({ owner, base }: Place, id: string, body: unknown = {}) =>
  owner.post(`${base}/endpoints/${id}/test`, body)

export const testOf = (type: string) => ({ data: { type: 'event', attributes: { type } } })

export const retry = ({ owner, base }: Place, delivery: string) => owner.post(`${base}/deliveries/${delivery}/retry`)

/** Returns the rows of an endpoint, oldest first. */
export const rowsOf = (endpointId: string) =>
  control
    .select()
    .from(webhookDeliveries)
    .where(eq(webhookDeliveries.endpointId, endpointId))
    .orderBy(asc(webhookDeliveries.id))

export const eventRowsOf = (projectRef: string) =>
  control.select().from(webhookEvents).where(eq(webhookEvents.projectRef, projectRef)).orderBy(asc(webhookEvents.id))

export async function endpointRow(id: string) {
  const [row] = await control.select().from(webhookEndpoints).where(eq(webhookEndpoints.id, id))
  if (!row) throw new Error('no endpoint')
  return row
}

/** Waits until the deliveries have these statuses, oldest first. */
export const untilStatuses = (endpointId: string, ...statuses: string[]) =>
  vi.waitFor(async () => {
    const rows = await rowsOf(endpointId)
    expect(rows.map(({ status }) => status)).toEqual(statuses)
    return rows
  }, WAIT)

type DeliveryFields = Partial<Omit<typeof webhookDeliveries.$inferInsert, 'endpointId'>>
interface History extends DeliveryFields {
  type?: EventType
  publishedAt?: Date
}

/** Inserts an event and a delivery as if they had been made long ago. */
export async function insertDelivery({ organization, ref }: Place, endpointId: string, history: History = {}) {
  const { type = 'v1.project.paused', publishedAt = new Date(), ...fields } = history
  const [event] = await control
    .insert(webhookEvents)
    .values({
      organizationId: organization.id,
      projectRef: ref,
      type,
      payload: { organization_slug: organization.slug, project_ref: ref, reason: 'other', actor: null },
      publishedAt,
    })
    .returning()
  if (!event) throw new Error('no event')
  const [delivery] = await control
    .insert(webhookDeliveries)
    .values({
      messageId: event.id,
      eventId: event.id,
      endpointId,
      trigger: 'event',
      status: 'success',
      responseCode: 200,
      nextAt: publishedAt,
      attemptedAt: publishedAt,
      createdAt: publishedAt,
      ...fields,
    })
    .returning()
  if (!delivery) throw new Error('no delivery')
  return { event, delivery }
}

/** Makes planned deliveries so long overdue that the sweep takes them. */
export async function bringForward(endpointId: string): Promise<void> {
  await control
    .update(webhookDeliveries)
    .set({
      nextAt: sql`now() - interval '10 seconds'`,
      // No sender holds a delivery that was postponed.
      leaseUntil: sql`case when claim is not null then lease_until end`,
    })
    .where(and(eq(webhookDeliveries.endpointId, endpointId), eq(webhookDeliveries.status, 'pending')))
  await tick()
}

/** Verifies a request as a receiver does, with both official libraries; returns its content. */
export function verified(received: Received | undefined, secret = SECRET) {
  const { body = '', headers = {} } = received ?? {}
  const signed = Object.fromEntries(
    ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => [name, String(headers[name])]),
  )
  const format = secret.startsWith('whsec_') ? {} : ({ format: 'raw' } as const)
  new SvixWebhook(secret, format).verify(body, signed)
  return new Webhook(secret, format).verify(body, signed) as Sent
}

interface Sent {
  id: string
  type: string
  timestamp: string
  payload: Record<string, unknown>
}

const errorIn = ({ body }: Reply) => {
  const { id: _, ...error } = body.error
  return error
}

/** Expects the same status and error, except for the request's id. */
export function expectSameError(reply: Reply, other: Reply): void {
  expect({ status: reply.status, error: errorIn(reply) }).toEqual({ status: other.status, error: errorIn(other) })
}

/** Returns the fields that a 400 names. */
export const fieldsOf = ({ body }: Reply): string[] =>
  (body.error?.issues ?? []).map(({ meta }: { meta: { field: string } }) => meta.field)

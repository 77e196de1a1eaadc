import { randomUUID } from 'node:crypto'
import { DeliveryList, EndpointReply, Ingress } from '../../../src/management/observability/webhooks/schema.ts'
import { type Installation, until } from './installation.ts'

export const SECRET = `whsec_${Buffer.from('twenty-four bytes of key').toString('base64')}`
const CREATED = 'v1.project.created'
const WAIT_MS = 20_000

/** Makes a user with an organization of their own, so that no rate limit is shared, who subscribes to its events. */
export async function newCustomer(installation: Installation) {
  const { call, rows } = installation
  const { slug } = (await expectStatus(201, call('POST', '/v1/organizations', { name: 'Webhooks' }))) as {
    slug: string
  }
  const hooks = `/v2/organizations/${slug}/webhooks`
  const endpointOf = (attributes: object) => ({ data: { type: 'endpoint', attributes } })

  return {
    slug,
    hooks,
    async subscribe(url: string, attributes: object = {}): Promise<string> {
      const body = endpointOf({ url, event_types: [{ type: CREATED }], signing_secret: SECRET, ...attributes })
      return EndpointReply.parse(await expectStatus(201, call('POST', `${hooks}/endpoints`, body))).data.id
    },
    async change(id: string, attributes: object) {
      const reply = await expectStatus(200, call('PATCH', `${hooks}/endpoints/${id}`, endpointOf(attributes)))
      return EndpointReply.parse(reply).data.attributes
    },
    async enabled(id: string): Promise<boolean> {
      return EndpointReply.parse(await expectStatus(200, call('GET', `${hooks}/endpoints/${id}`))).data.attributes
        .enabled
    },
    /** Publishes a real event: one delivery for each endpoint. */
    async createProject(): Promise<string> {
      const body = { name: randomUUID(), organization_slug: slug, db_pass: randomUUID() }
      return ((await expectStatus(201, call('POST', '/v1/projects', body))) as { ref: string }).ref
    },
    /** Makes one attempt, to only this endpoint. Returns the message's id. */
    async sendTest(id: string): Promise<string> {
      return Ingress.parse(await expectStatus(201, call('POST', `${hooks}/endpoints/${id}/test`, {}))).data.id
    },
    /** Makes one more attempt; a planned one is made at once. */
    retry: (deliveryId: string) => expectStatus(201, call('POST', `${hooks}/deliveries/${deliveryId}/retry`)),
    /** Returns the deliveries as the API lists them, oldest first. */
    async deliveries(id: string) {
      const reply = await expectStatus(200, call('GET', `${hooks}/endpoints/${id}/deliveries?page[size]=100`))
      return DeliveryList.parse(reply)
        .data.map(({ attributes }) => attributes)
        .reverse()
    },
    /** Waits until every due delivery is recorded, and not for retries that are planned for later. */
    async untilRecorded(...ids: string[]): Promise<void> {
      await until(`what is due for ${ids} is recorded`, WAIT_MS, async () => {
        const [row] = await rows<{ open: number; known: number }>(
          `select count(*) filter (where status = 'pending' and next_at <= now())::int as open,
            count(distinct endpoint_id)::int as known from webhook_deliveries where endpoint_id = any($1)`,
          [ids],
        )
        return row?.open === 0 && row.known === ids.length ? true : undefined
      })
    },
  }
}
export type Customer = Awaited<ReturnType<typeof newCustomer>>
export type Delivery = Awaited<ReturnType<Customer['deliveries']>>[number]

async function expectStatus(status: number, reply: Promise<{ status: number; body: unknown }>): Promise<unknown> {
  const got = await reply
  if (got.status !== status) throw new Error(`${got.status} instead of ${status}: ${JSON.stringify(got.body)}`)
  return got.body
}

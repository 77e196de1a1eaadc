import { eq } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import { webhookEndpoints } from '../../src/model/tables/index.ts'
import { control } from '../support/api.ts'
import { untilBlocked } from '../support/blocked.ts'
import { newReceiver, withStatus } from '../support/receiver.ts'
import {
  bringForward,
  insertDelivery,
  KINDS,
  NOBODY,
  newEndpoint,
  newPlace,
  patchEndpoint,
  retry,
  rowsOf,
  sendTest,
  untilStatuses,
  WAIT,
} from '../support/webhooks.ts'

describe.each(KINDS)('POST /v2/%s/…/webhooks/deliveries/{id}/retry', (kind) => {
  it('makes one more attempt of the same message, whatever the result of the first, and plans none after it', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    await sendTest(place, id)
    const [first] = await untilStatuses(id, 'success')
    receiver.answer(withStatus(500))
    const reply = await retry(place, first?.id ?? '')
    expect({ status: reply.status, body: reply.body }).toEqual({
      status: 201,
      body: { data: { type: 'ingress', id: first?.messageId } },
    })
    const rows = await untilStatuses(id, 'success', 'failure')
    expect(rows[1]).toMatchObject({ trigger: 'retry', attempt: 2, messageId: first?.messageId })
    const [one, two] = receiver.received
    expect([two?.body, two?.headers['webhook-id']]).toEqual([one?.body, one?.headers['webhook-id']])
    await bringForward(id)
    expect(await rowsOf(id)).toEqual(rows)
    expect(receiver.received).toHaveLength(2)
  })

  it('makes a pending attempt at once instead of adding one, named by any attempt of the message', async () => {
    const receiver = await newReceiver(withStatus(500))
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    await insertDelivery(place, id, { status: 'pending', attemptedAt: null, nextAt: new Date(Date.now() + 3_600_000) })
    const [pending] = await rowsOf(id)
    expect((await retry(place, pending?.id ?? '')).status).toBe(201)
    const [failed] = await untilStatuses(id, 'failure', 'pending')
    receiver.answer(withStatus(200))
    expect((await retry(place, failed?.id ?? '')).status).toBe(201)
    const rows = await untilStatuses(id, 'failure', 'success')
    expect(rows.map(({ attempt, trigger }) => ({ attempt, trigger }))).toEqual([
      { attempt: 1, trigger: 'event' },
      { attempt: 1, trigger: 'event' },
    ])
    expect(receiver.received).toHaveLength(2)
  })

  it('does not use up the schedule: automatic attempts stay planned, however often a user retries', async () => {
    const place = await newPlace(kind)
    const receiver = await newReceiver(withStatus(500))
    const id = await newEndpoint(place, { url: receiver.url })
    const { delivery } = await insertDelivery(place, id, { status: 'pending', attemptedAt: null, nextAt: new Date() })
    await bringForward(id)
    for (let retries = 1; retries <= 5; retries++) {
      await untilStatuses(id, ...Array.from({ length: retries }, () => 'failure' as const), 'pending')
      expect((await retry(place, delivery.id)).status).toBe(201)
    }
    const rows = await untilStatuses(id, ...Array.from({ length: 6 }, () => 'failure' as const), 'pending')
    expect(rows.at(-1)).toMatchObject({ status: 'pending', attempt: 2, trigger: 'event' })
  })

  it('makes one attempt of several requests', async () => {
    const waiting: (() => void)[] = []
    const receiver = await newReceiver((_request, response) => waiting.push(() => response.end()))
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const { delivery } = await insertDelivery(place, id)
    const replies = await Promise.all([1, 2, 3].map(() => retry(place, delivery.id)))
    expect(replies.map(({ status }) => status)).toEqual([201, 201, 201])
    await vi.waitFor(() => expect(waiting).toHaveLength(1), WAIT)
    expect((await retry(place, delivery.id)).status).toBe(201)
    for (const answer of waiting) answer()
    await untilStatuses(id, 'success', 'success')
    expect(receiver.received).toHaveLength(1)
  })

  it('refuses a deleted endpoint and a disabled one', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const { delivery } = await insertDelivery(place, id)
    await patchEndpoint(place, id, { enabled: false })
    expect(await retry(place, delivery.id)).toMatchObject({
      status: 400,
      body: { error: { code: 'bad_request.endpoint.test.disabled', message: 'Bad Request: Endpoint is disabled' } },
    })
    await place.owner.delete(`${place.base}/endpoints/${id}`)
    expect(await retry(place, delivery.id)).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found.delivery' } },
    })
  })

  it('refuses an endpoint that is deleted at the same moment', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const { delivery } = await insertDelivery(place, id)
    const { asked } = await control.transaction(async (tx) => {
      await tx.delete(webhookEndpoints).where(eq(webhookEndpoints.id, id))
      return untilBlocked(tx, () => retry(place, delivery.id))
    })
    expect(await asked).toMatchObject({ status: 404, body: { error: { code: 'not_found.delivery' } } })
  })

  it('is allowed 10 times a minute', async () => {
    const place = await newPlace(kind)
    const replies = []
    for (let n = 0; n < 11; n++) replies.push(await retry(place, NOBODY))
    expect(replies.map(({ status }) => status)).toEqual([...Array(10).fill(404), 429])
    expect(replies.at(-1)?.headers.get('x-ratelimit-limit')).toBe('10')
  })
})

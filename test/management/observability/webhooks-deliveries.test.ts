import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { eq } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import { webhookDeliveries, webhookEvents } from '../../../src/model/tables/index.ts'
import { as, control, newMember, tokenOf, workerLogs } from '../../support/api.ts'
import { newReceiver, withStatus } from '../../support/receiver.ts'
import {
  bringForward,
  deliveriesOf,
  fieldsOf,
  INSTANT,
  insertDelivery,
  KINDS,
  NOBODY,
  newEndpoint,
  newPlace,
  type Place,
  patchEndpoint,
  retry,
  rowsOf,
  sendTest,
  testOf,
  UUID_V7,
  untilStatuses,
  verified,
  WAIT,
} from '../../support/webhooks.ts'

const SECOND_MS = 1000
const RETAINED_S = 1_209_600

const get = ({ owner, base }: Place, delivery: string) => owner.get(`${base}/deliveries/${delivery}`)

const idsOf = async (place: Place, path: string) => {
  const { status, body } = await place.owner.get(path)
  expect(status).toBe(200)
  return { ids: body.data.map(({ id }: { id: string }) => id) as string[], links: body.links }
}

/** Inserts deliveries and returns their ids, the newest last. */
async function insertMany(place: Place, endpointId: string, count: number): Promise<string[]> {
  const { event } = await insertDelivery(place, endpointId, { messageId: randomUUID() })
  const row = {
    messageId: event.id,
    eventId: event.id,
    endpointId,
    trigger: 'event' as const,
    status: 'failure' as const,
    nextAt: event.publishedAt,
    createdAt: event.publishedAt,
  }
  await control.insert(webhookDeliveries).values(Array.from({ length: count - 1 }, () => row))
  return (await rowsOf(endpointId)).slice(-count).map(({ id }) => id)
}

describe.each(KINDS)('the deliveries of /v2/%s/…/webhooks', (kind) => {
  it('are shown with the request and the response, the same in the list and alone', async () => {
    const receiver = await newReceiver(withStatus(202, { 'x-answer': 'yes', 'set-cookie': 'a=b' }, '{"queued":"true"}'))
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const test = await sendTest(place, id, testOf('v1.project.paused'))
    expect(test).toMatchObject({ status: 201, body: { data: { type: 'ingress', id: expect.stringMatching(UUID_V7) } } })
    const [row] = await untilStatuses(id, 'success')
    const delivery = {
      type: 'delivery',
      id: row?.id,
      attributes: {
        id: row?.id,
        event_id: test.body.data.id,
        status: 'success',
        response_code: 202,
        response_headers: expect.objectContaining({ 'x-answer': 'yes', 'set-cookie': 'a=b' }),
        response_body: { queued: 'true' },
        error_code: null,
        error_message: null,
        attempt_timestamp: expect.stringMatching(INSTANT),
        event: {
          type: 'v1.project.paused',
          payload: {
            organization_slug: place.organization.slug,
            project_ref: place.ref,
            reason: 'other',
            is_test: true,
            actor: { user_id: place.organization.userId },
          },
          timestamp: expect.stringMatching(INSTANT),
        },
      },
    }
    const alone = await get(place, row?.id ?? '')
    expect({ status: alone.status, body: alone.body }).toEqual({ status: 200, body: { data: delivery } })
    const list = await deliveriesOf(place, id)
    const first = `${place.base}/endpoints/${id}/deliveries?page[size]=20`
    expect({ status: list.status, body: list.body }).toEqual({
      status: 200,
      body: { data: [alone.body.data], links: { first, prev: null, next: null } },
    })
    const { event, attempt_timestamp } = alone.body.data.attributes
    expect(Date.parse(attempt_timestamp)).toBeGreaterThanOrEqual(Date.parse(event.timestamp))
    expect(verified(receiver.received[0])).toEqual({
      id: test.body.data.id,
      type: event.type,
      timestamp: event.timestamp,
      payload: event.payload,
    })
  })

  it('show a body of strings as an object, any other as its text, and none as null', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const shapes: [string, unknown][] = [
      ['', null],
      ['{}', {}],
      ['{"a":"b","c":""}', { a: 'b', c: '' }],
      ['{"a":1}', '{"a":1}'],
      ['{"a":{"b":"c"}}', '{"a":{"b":"c"}}'],
      ['["a"]', '["a"]'],
      ['"a"', '"a"'],
      ['null', 'null'],
      ['17', '17'],
      ['<p>Not Found</p>', '<p>Not Found</p>'],
      ['{"cut":"', '{"cut":"'],
    ]
    for (const [responseBody, shown] of shapes) {
      const { delivery } = await insertDelivery(place, id, { responseBody })
      expect((await get(place, delivery.id)).body.data.attributes.response_body).toEqual(shown)
    }
  })

  it('show every name of a header and in a body, also one that is special in objects', async () => {
    const responseBody = '{"__proto__":"a","b":"c"}'
    const responseHeaders = JSON.parse('{"__proto__":"a","x-b":"c"}')
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const { delivery } = await insertDelivery(place, id, { responseBody, responseHeaders })
    for (const shown of [(await get(place, delivery.id)).body.data, (await deliveriesOf(place, id)).body.data[0]]) {
      expect(Object.entries(shown.attributes.response_headers)).toEqual(Object.entries(responseHeaders))
      expect(JSON.stringify(shown.attributes.response_body)).toBe(responseBody)
    }
  })

  it('show the beginning of a long body in the list, and all of it alone', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const long = { text: 'é'.repeat(4097) }
    const { delivery } = await insertDelivery(place, id, { responseBody: JSON.stringify(long) })
    const [listed] = (await deliveriesOf(place, id)).body.data
    expect(listed.attributes.response_body).toBe(JSON.stringify(long).slice(0, 4096))
    expect((await get(place, delivery.id)).body.data.attributes.response_body).toEqual(long)
  })

  it('show why an attempt failed, and which are pending or skipped', async () => {
    const place = await newPlace(kind)
    const failing = await newReceiver(withStatus(503, { 'content-type': 'text/plain' }, 'busy'))
    const failed = await newEndpoint(place, { url: failing.url })
    await sendTest(place, failed)
    const [row] = await untilStatuses(failed, 'failure')
    expect((await get(place, row?.id ?? '')).body.data.attributes).toMatchObject({
      status: 'failure',
      response_code: 503,
      response_body: 'busy',
      error_code: 'bad_status',
      error_message: expect.any(String),
    })
    const id = await newEndpoint(place)
    const nextAt = new Date(Date.now() + 60_000)
    const still = { attemptedAt: null, responseCode: 0, nextAt }
    const pending = await insertDelivery(place, id, { ...still, status: 'pending' })
    const skipped = await insertDelivery(place, id, { ...still, status: 'skipped', errorCode: 'endpoint_disabled' })
    const nothing = { response_code: 0, response_headers: {}, response_body: null, error_message: null }
    const due = { attempt_timestamp: nextAt.toISOString() }
    expect((await deliveriesOf(place, id)).body.data).toMatchObject([
      {
        id: skipped.delivery.id,
        attributes: { status: 'skipped', ...nothing, ...due, error_code: 'endpoint_disabled' },
      },
      { id: pending.delivery.id, attributes: { status: 'pending', ...nothing, ...due, error_code: null } },
    ])
  })

  it('are listed newest first, page by page, in both directions', async () => {
    const place = await newPlace(kind)
    const [id, other] = [await newEndpoint(place), await newEndpoint(place)]
    await insertMany(place, other, 3)
    const [oldest, ...middle] = (await insertMany(place, id, 5)) as [string, string, string, string, string]
    const [d4, d3, d2, d1, d0] = [...middle.reverse(), oldest] as [string, string, string, string, string]
    const link = (cursor = '') => `${place.base}/endpoints/${id}/deliveries?page[size]=2${cursor}`
    const page = (cursor = '') => idsOf(place, link(cursor))
    const first = link()
    const past = (cursor: string) => `&page[after]=${cursor}`
    const ahead = (cursor: string) => `&page[before]=${cursor}`
    expect(await page()).toEqual({ ids: [d4, d3], links: { first, prev: null, next: link(past(d3)) } })
    expect(await page(past(d3))).toEqual({
      ids: [d2, d1],
      links: { first, prev: link(ahead(d2)), next: link(past(d1)) },
    })
    expect(await page(past(d1))).toEqual({ ids: [d0], links: { first, prev: link(ahead(d0)), next: null } })
    expect(await page(ahead(d0))).toEqual({
      ids: [d2, d1],
      links: { first, prev: link(ahead(d2)), next: link(past(d1)) },
    })
    expect(await page(ahead(d2))).toEqual({ ids: [d4, d3], links: { first, prev: null, next: link(past(d3)) } })
    expect(await page(ahead(d3))).toEqual({ ids: [d4], links: { first, prev: null, next: link(past(d4)) } })
    const [beyond, above] = [await page(past(d0)), await page(ahead(d4))]
    expect([beyond, above]).toMatchObject([
      { ids: [], links: { first, next: null } },
      { ids: [], links: { first, prev: null } },
    ])
    expect((await idsOf(place, beyond.links.prev)).ids).toEqual([d1, d0])
    expect((await idsOf(place, above.links.next)).ids).toEqual([d4, d3])
  })

  it('appear once each on the pages while others are added', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const existing = (await insertMany(place, id, 55)).reverse()
    const walk = async (from: string, link: 'prev' | 'next') => {
      const pages: string[][] = []
      for (let path: string | null = from; path; ) {
        const { ids, links }: Awaited<ReturnType<typeof idsOf>> = await idsOf(place, path)
        pages.push(ids)
        path = pages.length < 30 ? links[link] : null
        if (pages.length <= 10) await insertMany(place, id, 20)
      }
      return pages
    }
    const down = await walk(`${place.base}/endpoints/${id}/deliveries?page[size]=10`, 'next')
    expect(down.flat()).toEqual(existing)
    const lowest = existing.at(-1)
    const up = await walk(`${place.base}/endpoints/${id}/deliveries?page[size]=10&page[before]=${lowest}`, 'prev')
    const seen = up.toReversed().flat()
    const all = (await rowsOf(id)).map((row) => row.id).reverse()
    expect(seen.slice(-54)).toEqual(existing.slice(0, -1))
    expect(seen).toEqual(all.slice(all.indexOf(seen[0] ?? ''), -1))
  })

  it.each(['page[size]=0', 'page[size]=x', 'page[after]=x', 'page[before]=x'])('refuse the page %s', async (query) => {
    const place = await newPlace(kind)
    const reply = await deliveriesOf(place, await newEndpoint(place), `?${query}`)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([`query.${query.split('=')[0]}`])
  })

  it('are at most 100 on a page', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    await insertMany(place, id, 101)
    const { body } = await deliveriesOf(place, id, '?page[size]=101')
    const first = `${place.base}/endpoints/${id}/deliveries?page[size]=100`
    expect(body.data).toHaveLength(100)
    expect(body.links).toEqual({ first, prev: null, next: `${first}&page[after]=${body.data.at(-1).id}` })
  })

  it('refuse a page with both before and after', async () => {
    const place = await newPlace(kind)
    const reply = await deliveriesOf(place, await newEndpoint(place), `?page[before]=${NOBODY}&page[after]=${NOBODY}`)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual(['query.page[before]'])
  })

  it('are available for 14 days to the second, and then neither listed nor read nor retried', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const publishedAt = new Date()
    const { delivery } = await insertDelivery(place, id, { publishedAt })
    const later = async (seconds: number) => {
      const reader = {
        ...place,
        owner: (await newMember(place.organization, 'owner')).at(new Date(publishedAt.getTime() + seconds * SECOND_MS)),
      }
      const { body } = await deliveriesOf(reader, id)
      return { listed: body.data.length, read: (await get(reader, delivery.id)).status, reader }
    }
    expect(await later(RETAINED_S)).toMatchObject({ listed: 1, read: 200 })
    const { reader, ...gone } = await later(RETAINED_S + 1)
    expect(gone).toEqual({ listed: 0, read: 404 })
    expect(await retry(reader, delivery.id)).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found.delivery', message: 'Not Found: Delivery not found' } },
    })
    expect(await rowsOf(id)).toHaveLength(1)
  })
})

/** Sends a body without a length, so that only its end shows that it is empty. */
async function chunkedPost(url: URL, headers: Record<string, string>): Promise<number> {
  const asked = request(url, { method: 'POST', headers: { ...headers, 'transfer-encoding': 'chunked' } })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  response.resume()
  return response.statusCode ?? 0
}

describe.each(KINDS)('POST /v2/%s/…/webhooks/endpoints/{id}/test', (kind) => {
  it('sends a subscribed type if none is given', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const [type, other] = ['v1.organization.member.added', 'v1.project.restored']
    const id = await newEndpoint(place, { url: receiver.url, event_types: [{ type }, { type: other }] })
    expect((await sendTest(place, id)).status).toBe(201)
    await untilStatuses(id, 'success')
    expect([type, other]).toContain(verified(receiver.received[0]).type)
  })

  it('needs no body and no type: without them, it sends any type that the endpoint subscribes to', async () => {
    const { owner, ...place } = await newPlace(kind)
    const id = await newEndpoint({ ...place, owner })
    const path = `${place.base}/endpoints/${id}/test`
    const headers = { 'content-type': 'application/json' }
    const chunked = await chunkedPost(new URL(path, owner.base), { ...headers, authorization: `Bearer ${owner.token}` })
    expect(chunked).toBe(201)
    for (const options of [{}, { headers }, { headers, raw: '' }, { raw: '' }])
      expect(await owner.send('POST', path, options)).toMatchObject({
        status: 201,
        body: { data: { type: 'ingress' } },
      })
    expect(await owner.send('POST', path, { headers, raw: ' ' })).toMatchObject({ status: 400 })
    for (const data of [{ type: 'event' }, { type: 'event', attributes: {} }])
      expect(await owner.post(path, { data })).toMatchObject({ status: 201 })
    expect(await rowsOf(id)).toHaveLength(7)
  })

  it('accepts every alias and sends the type itself, marked as a test', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const names = {
      'project.v1.paused': 'v1.project.paused',
      'project.v1.branch.deleted': 'v1.project.branch.removed',
      'organization.v1.member.role.updated': 'v1.organization.member.role.updated',
      'v1.organization.billing.plan.upgraded': 'v1.organization.billing.plan.upgraded',
    }
    for (const name of Object.keys(names)) expect((await sendTest(place, id, testOf(name))).status).toBe(201)
    await untilStatuses(id, 'success', 'success', 'success', 'success')
    const sent = receiver.received.map((received) => verified(received))
    expect(sent.map(({ type }) => type).sort()).toEqual(Object.values(names).sort())
    for (const { payload } of sent) expect(payload).toMatchObject({ is_test: true, project_ref: place.ref })
  })

  it('is attempted once and never again', async () => {
    const receiver = await newReceiver(withStatus(500))
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    await sendTest(place, id)
    const rows = await untilStatuses(id, 'failure')
    expect(rows).toMatchObject([{ trigger: 'test', attempt: 1 }])
    await bringForward(id)
    expect(await rowsOf(id)).toEqual(rows)
  })

  it('refuses a disabled endpoint and a type without a subscription', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { event_types: [{ type: 'v1.project.paused' }] })
    for (const type of ['v1.project.created', 'project.v1.created'])
      expect(await sendTest(place, id, testOf(type))).toMatchObject({
        status: 400,
        body: {
          error: {
            code: 'bad_request.endpoint.test.wrong_event_type',
            message: 'Bad Request: Provided event type is not subscribed to by the endpoint',
          },
        },
      })
    await patchEndpoint(place, id, { enabled: false })
    expect(await sendTest(place, id)).toMatchObject({
      status: 400,
      body: { error: { code: 'bad_request.endpoint.test.disabled', message: 'Bad Request: Endpoint is disabled' } },
    })
    expect(await rowsOf(id)).toEqual([])
  })

  it('refuses an unknown event type, and names the field', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const bodies: [unknown, string][] = [
      [testOf('v1.project.exploded'), 'body.data.attributes.type'],
      [testOf('*'), 'body.data.attributes.type'],
      [{ data: { type: 'event', attributes: { types: 'v1.project.paused' } } }, 'body.data.attributes'],
      [{ data: { type: 'event', attribute: { type: 'v1.project.paused' } } }, 'body.data'],
      [{ data: { type: 'test', attributes: { type: 'v1.project.paused' } } }, 'body.data.type'],
      [{ data: null }, 'body.data'],
      [{ type: 'v1.project.removed' }, 'body'],
      [{ attributes: { type: 'v1.project.removed' } }, 'body'],
    ]
    for (const [body, field] of bodies) {
      const reply = await sendTest(place, id, body)
      expect(reply.status).toBe(400)
      expect(fieldsOf(reply)).toEqual([field])
    }
  })

  it('is allowed 10 times a minute, which count as requests too but do not use up other limits', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const id = await newEndpoint(place, { event_types: [{ type: 'v1.project.paused' }] })
    const test = () => sendTest(place, id, testOf('v1.project.created'))
    for (let n = 1; n <= 10; n++) {
      const { status, headers } = await test()
      expect([status, headers.get('x-ratelimit-limit'), headers.get('x-ratelimit-remaining')]).toEqual([
        400,
        '10',
        String(10 - n),
      ])
    }
    const refused = await test()
    expect(refused).toMatchObject({ status: 429, body: { error: { code: 'too_many_requests' } } })
    expect(Object.fromEntries(refused.headers)).toMatchObject({
      'x-ratelimit-limit': '10',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': expect.stringMatching(/^[1-5]?\d{1,4}$/),
      'retry-after': expect.stringMatching(/^\d+$/),
    })
    const read = await owner.get(`${base}/endpoints/${id}`)
    expect([read.status, read.headers.get('x-ratelimit-limit')]).toEqual([200, '120'])
    // The create, ten tests and this request: the refused test was not counted.
    expect(read.headers.get('x-ratelimit-remaining')).toBe('108')
    const elsewhere = await newPlace(kind)
    expect((await sendTest({ ...elsewhere, owner }, NOBODY)).status).toBe(404)
  })
})

describe('the stricter limits', () => {
  it('without a token exclude no caller with one', async () => {
    const place = await newPlace('projects')
    const address = { 'x-test-address': `test-${randomUUID()}` }
    const stranger = as(undefined, address)
    const path = `${place.base}/endpoints/${NOBODY}/test`
    for (let n = 0; n < 11; n++) expect([401, 429]).toContain((await stranger.post(path, {})).status)
    const { token } = await tokenOf(place.organization.userId)
    expect((await as(token, address).get('/v1/projects')).status).toBe(200)
  })
})

describe('the log', () => {
  it('contains no secret, no custom header, and nothing of requests and responses', async () => {
    const [secret, header, answer] = Array.from({ length: 3 }, () => `hidden-${randomUUID()}`) as [
      string,
      string,
      string,
    ]
    const receiver = await newReceiver(withStatus(500, { 'x-answer': answer }, answer))
    const place = await newPlace('projects')
    const hidden = { signing_secret: secret, custom_headers: { 'x-key': header } }
    const url = `${receiver.url}?key=${answer}`
    const id = await newEndpoint(place, { ...hidden, url })
    const bad = `${secret}-${'x'.repeat(64)}`
    const invalid = [
      await patchEndpoint(place, id, { signing_secret: bad }),
      await patchEndpoint(place, id, { custom_headers: { 'x-key': `${header}\n` } }),
      await place.owner.send('PATCH', `${place.base}/endpoints/${id}`, {
        raw: `{"data":"${secret}${header}`,
        headers: { 'content-type': 'application/json' },
      }),
    ]
    expect(invalid.map(({ status }) => status)).toEqual([400, 400, 400])
    await insertDelivery(place, id, { status: 'pending', attemptedAt: null })
    await control
      .update(webhookEvents)
      .set({ payload: { organization_slug: 'x', project_ref: null, note: answer } })
      .where(eq(webhookEvents.projectRef, place.ref ?? ''))
    await bringForward(id)
    await untilStatuses(id, 'failure', 'pending')
    await patchEndpoint(place, id, { url: 'http://127.0.0.1:9/', signing_secret: `${secret}-new` })
    await bringForward(id)
    await untilStatuses(id, 'failure', 'failure', 'pending')
    expect(receiver.received[0]?.headers['x-key']).toBe(header)
    const lines = await vi.waitFor(async () => {
      const lines = (await workerLogs(id)).join('\n')
      expect(lines).toContain('webhook_attempts')
      return lines
    }, WAIT)
    for (const text of [lines, JSON.stringify(invalid.map(({ body }) => body))])
      for (const word of [secret, header, answer]) expect(text).not.toContain(word)
  })
})

import { asc, eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { EVENT_TYPES } from '../../../src/model/event-types.ts'
import { auditLog, webhookDeliveries, webhookEndpoints } from '../../../src/model/tables/index.ts'
import { publish } from '../../../src/outbound/events/publish.ts'
import { addMember, control, newMember, newOrganization, newUser, tokenOf, workerLogs } from '../../support/api.ts'
import { newReceiver } from '../../support/receiver.ts'
import {
  deliveriesOf,
  endpointRow,
  expectSameError,
  fieldsOf,
  INSTANT,
  insertDelivery,
  insertProject,
  KINDS,
  NOBODY,
  newEndpoint,
  newPlace,
  type Place,
  patchEndpoint,
  placeOf,
  postEndpoint,
  retry,
  rowsOf,
  SECRET,
  sendTest,
  UUID_V7,
  untilStatuses,
  VALID,
  verified,
  WAIT,
} from '../../support/webhooks.ts'

const at = (field: string) => `body.data.attributes.${field}`
const types = (...names: string[]) => names.map((type) => ({ type }))
const headers = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-${n}`, 'v']))
const HEADERS = { authorization: 'Bearer of-the-receiver', 'X-Tenant': 'acme' }

/** Values that both POST and PATCH refuse, with the field that the reply names. */
const REFUSED: [string, Record<string, unknown>, string][] = [
  ...['', 'x', '//127.0.0.1/', 'ftp://127.0.0.1/', 'javascript:alert(1)', 'data:text/plain,x', 'http://', null, 7].map(
    (url): [string, Record<string, unknown>, string] => [`the url ${JSON.stringify(url)}`, { url }, at('url')],
  ),
  ['a url with credentials', { url: 'http://user:password@127.0.0.1/' }, at('url')],
  ['a url of an address', { url: 'https://192.168.0.1/' }, at('url')],
  ['a url of a project of this installation', { url: 'https://abc.Projects.Example.com:8443/' }, at('url')],
  ['a url longer than 2048', { url: `http://127.0.0.1/${'x'.repeat(2032)}` }, at('url')],
  ['enabled as text', { enabled: 'yes' }, at('enabled')],
  ['enabled as null', { enabled: null }, at('enabled')],
  ['a description of 513 characters', { description: 'x'.repeat(513) }, at('description')],
  ['a description of 513 characters outside the basic plane', { description: '🐘'.repeat(513) }, at('description')],
  ['a description with a NUL', { description: 'a\u0000b' }, at('description')],
  ['a description as number', { description: 7 }, at('description')],
  ['no event type', { event_types: [] }, at('event_types')],
  ['event types as text', { event_types: '*' }, at('event_types')],
  ['event types as strings', { event_types: ['*'] }, `${at('event_types')}.0`],
  ['an unknown event type', { event_types: types('*', 'v1.project.exploded') }, `${at('event_types')}.1.type`],
  ['an alias of an event type', { event_types: types('project.v1.paused') }, `${at('event_types')}.0.type`],
  ['the alias branch.deleted', { event_types: types('project.v1.branch.deleted') }, `${at('event_types')}.0.type`],
  [
    'more event types than there are',
    { event_types: Array(EVENT_TYPES.length + 2).fill({ type: '*' }) },
    at('event_types'),
  ],
  ['headers as a list', { custom_headers: [] }, at('custom_headers')],
  ['a header with a number', { custom_headers: { 'x-a': 7 } }, `${at('custom_headers')}.x-a`],
  ['a header name with an underscore', { custom_headers: { x_a: 'v' } }, at('custom_headers')],
  [
    'a header name that is special to objects',
    { custom_headers: JSON.parse('{"x-a":"v","__proto__":"v"}') },
    at('custom_headers'),
  ],
  ['a header without a name', { custom_headers: { '': 'v' } }, at('custom_headers')],
  ['a header value with a line break', { custom_headers: { 'x-a': 'a\r\nx-b: c' } }, at('custom_headers')],
  ['a header value outside ASCII', { custom_headers: { 'x-a': 'é' } }, at('custom_headers')],
  ['a header value of 4097 bytes', { custom_headers: { 'x-a': 'v'.repeat(4097) } }, at('custom_headers')],
  ['21 headers', { custom_headers: headers(21) }, at('custom_headers')],
  ['a header twice', { custom_headers: { 'x-a': 'v', 'X-A': 'v' } }, at('custom_headers')],
  ...[
    'Webhook-Id',
    'webhook-signature',
    'Host',
    'content-length',
    'content-type',
    'user-agent',
    'x-forwarded-for',
    'cf-ray',
  ].map((name): [string, Record<string, unknown>, string] => [
    `the header ${name}`,
    { custom_headers: { [name]: 'v' } },
    at('custom_headers'),
  ]),
  ['a secret of 7 characters', { signing_secret: 'x'.repeat(7) }, at('signing_secret')],
  ['a secret of 65 characters', { signing_secret: 'x'.repeat(65) }, at('signing_secret')],
  ['a secret outside ASCII', { signing_secret: 'geheimnüs' }, at('signing_secret')],
  ['a secret with a line break', { signing_secret: 'secret\nsecret' }, at('signing_secret')],
  ['a secret as null', { signing_secret: null }, at('signing_secret')],
]

/** Values that both accept, and how they are shown if that differs. */
const TAKEN: [string, Record<string, unknown>, Record<string, unknown>?][] = [
  ['another url', { url: 'http://localhost:8080/a?b=c#d' }],
  ['a url of 2048 characters', { url: `http://127.0.0.1/${'x'.repeat(2031)}` }],
  ['enabled: false', { enabled: false }],
  ['enabled: true', { enabled: true }],
  ['a description of 512 characters', { description: 'x'.repeat(512) }],
  ['a description of 512 characters outside the basic plane', { description: '🐘'.repeat(512) }],
  ['an empty description', { description: '' }],
  ['no description', { description: null }],
  ['one event type', { event_types: types('v1.project.paused') }],
  ['every event type', { event_types: types(...EVENT_TYPES, '*') }],
  [
    'an event type twice',
    { event_types: types('*', 'v1.project.paused', '*') },
    { event_types: types('*', 'v1.project.paused') },
  ],
  ['headers', { custom_headers: HEADERS }],
  ['20 headers', { custom_headers: headers(20) }],
  ['an empty set of headers', { custom_headers: {} }],
  ['no headers', { custom_headers: null }],
  ['a secret of 8 characters', { signing_secret: 'x'.repeat(8) }, {}],
  ['a secret of 64 characters', { signing_secret: 'x'.repeat(64) }, {}],
]

/** Inserts more deliveries of the same event to the same endpoint. */
async function insertMany({ event, delivery }: Awaited<ReturnType<typeof insertDelivery>>, count: number) {
  await control.execute(sql`
    insert into webhook_deliveries (message_id, event_id, endpoint_id, trigger, status, next_at, created_at)
    select gen_random_uuid(), ${event.id}, ${delivery.endpointId}, 'event', 'success', now(), now()
    from generate_series(1, ${count}::int)`)
}

const blockedDeletions = async () => {
  const { rows } = await control.execute(sql`
    select from pg_stat_activity where wait_event_type = 'Lock' and query ilike 'delete from "webhook_endpoints"%'`)
  return rows.length
}

const endpointView = ({ organization }: Place, id: unknown = expect.stringMatching(UUID_V7)) => ({
  type: 'endpoint',
  id,
  attributes: {
    id,
    url: VALID.url,
    enabled: true,
    description: null,
    event_types: [{ type: '*' }],
    custom_headers: null,
    created_by: organization.userId,
    created_at: expect.stringMatching(INSTANT),
  },
})

describe.each(KINDS)('/v2/%s/…/webhooks/endpoints', (kind) => {
  it('creates with the defaults, and returns the same ever after, never the secret', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const created = await postEndpoint(place)
    expect({ status: created.status, body: created.body }).toEqual({ status: 201, body: { data: endpointView(place) } })
    const { id, attributes } = created.body.data
    expect(attributes.id).toBe(id)
    expect(Math.abs(Date.parse(attributes.created_at) - Date.now())).toBeLessThan(60_000)
    expect(await owner.get(`${base}/endpoints/${id}`)).toMatchObject({ status: 200, body: created.body })
    expect((await owner.get(`${base}/endpoints`)).body.data).toEqual([created.body.data])
  })

  it('stores secret and headers sealed, and the secret is in no reply and not in the audit log', async () => {
    const place = await newPlace(kind)
    const { owner, base, organization, ref } = place
    const secret = 'a-secret-that-nobody-sees'
    const created = await postEndpoint(place, { signing_secret: secret, custom_headers: HEADERS })
    const { id } = created.body.data
    const row = JSON.stringify(await endpointRow(id))
    const patched = await patchEndpoint(place, id, { signing_secret: SECRET })
    const rotated = JSON.stringify(await endpointRow(id))
    const audit = await control
      .select()
      .from(auditLog)
      .where(eq(auditLog.organizationId, organization.id))
      .orderBy(asc(auditLog.createdAt))
    expect(audit).toMatchObject([
      {
        action: 'webhook.endpoint.create',
        actorUserId: organization.userId,
        projectRef: ref,
        detail: { endpoint: id },
      },
      { action: 'webhook.endpoint.update', detail: { endpoint: id, fields: ['signing_secret'] } },
    ])
    const replies = [
      created,
      patched,
      await owner.get(`${base}/endpoints/${id}`),
      await owner.get(`${base}/endpoints`),
      await owner.delete(`${base}/endpoints/${id}`),
      await postEndpoint(place, { signing_secret: secret }),
      await owner.delete(`${base}/endpoints`),
    ]
    expect(replies.map(({ status }) => status)).toEqual([201, 200, 200, 200, 200, 201, 200])
    const seen = JSON.stringify(replies.map(({ body }) => body))
    for (const hidden of [secret, SECRET, 'signing_secret', 'sealed', 'oldSecrets']) expect(seen).not.toContain(hidden)
    for (const text of [row, rotated, JSON.stringify(audit)])
      for (const hidden of [secret, SECRET, HEADERS.authorization, 'acme']) expect(text).not.toContain(hidden)
  })

  describe('an accepted value', () => {
    let place: Place
    let id: string
    beforeAll(async () => {
      place = await newPlace(kind)
      id = await newEndpoint(place)
    })

    it.each(TAKEN)('is %s', async (_name, attributes, expected = attributes) => {
      const { owner, base } = place
      const before = (await owner.get(`${base}/endpoints/${id}`)).body.data
      const after = { ...before, attributes: { ...before.attributes, ...expected } }
      expect(await patchEndpoint(place, id, attributes)).toMatchObject({ status: 200, body: { data: after } })
      expect((await owner.get(`${base}/endpoints/${id}`)).body).toEqual({ data: after })
      const created = await postEndpoint(place, attributes)
      expect(created.body.data.attributes).toEqual({
        ...endpointView(place).attributes,
        id: created.body.data.id,
        ...expected,
      })
    })

    it('may be missing in a change, which then changes nothing', async () => {
      const before = await endpointRow(id)
      expect((await patchEndpoint(place, id, {})).status).toBe(200)
      expect((await patchEndpoint(place, id, { unknown: true })).status).toBe(200)
      expect(await endpointRow(id)).toEqual(before)
    })
  })

  describe('a refused value', () => {
    let place: Place
    let id: string
    beforeAll(async () => {
      place = await newPlace(kind)
      id = await newEndpoint(place)
    })

    it.each(REFUSED)('is %s', async (_name, attributes, field) => {
      const rows = () =>
        control.select().from(webhookEndpoints).where(eq(webhookEndpoints.organizationId, place.organization.id))
      const before = await rows()
      for (const reply of [await postEndpoint(place, attributes), await patchEndpoint(place, id, attributes)]) {
        expect(reply).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
        expect(fieldsOf(reply)).toEqual([field])
        for (const secret of ['x'.repeat(65), 'geheimnüs']) expect(JSON.stringify(reply.body)).not.toContain(secret)
      }
      expect(await rows()).toEqual(before)
    })
  })

  it('refuses a URL that parsers repair but that is not a URI', async () => {
    const place = await newPlace(kind)
    const urls = [
      ' http://127.0.0.1/',
      'http://127.0.0.1/\n',
      'http://127.0.0.1/a b',
      'http:127.0.0.1',
      'http:\\\\127.0.0.1',
    ]
    const replies = await Promise.all(urls.map((url) => postEndpoint(place, { url })))
    expect(replies.map(({ status }) => status)).toEqual(urls.map(() => 400))
  })

  it.each(['url', 'event_types', 'signing_secret'])('requires %s', async (field) => {
    const place = await newPlace(kind)
    const reply = await postEndpoint(place, { [field]: undefined })
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([at(field)])
  })

  it('refuses a body of another structure, and names the part', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const id = await newEndpoint(place)
    const parts: [unknown, string][] = [
      [{}, 'body.data'],
      [{ data: [] }, 'body.data'],
      [{ data: { attributes: VALID } }, 'body.data.type'],
      [{ data: { type: 'webhook', attributes: VALID } }, 'body.data.type'],
      [{ data: { type: 'endpoint' } }, 'body.data.attributes'],
    ]
    for (const [body, part] of parts) {
      expect(fieldsOf(await owner.post(`${base}/endpoints`, body))).toEqual([part])
      expect(fieldsOf(await owner.patch(`${base}/endpoints/${id}`, body))).toEqual([part])
    }
  })

  it('lists the oldest first, page by page, with links in both directions', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const ids: string[] = []
    for (let n = 0; n < 5; n++) ids.push(await newEndpoint(place))
    const link = (offset: number) => `${base}/endpoints?page[offset]=${offset}&page[limit]=2`
    const page = async (path: string) => {
      const { body } = await owner.get(path)
      return { ids: body.data.map(({ id }: { id: string }) => id), links: body.links }
    }
    const [first, last] = [link(0), link(4)]
    expect(await page(first)).toEqual({ ids: ids.slice(0, 2), links: { first, last, prev: null, next: link(2) } })
    expect(await page(link(2))).toEqual({ ids: ids.slice(2, 4), links: { first, last, prev: link(0), next: link(4) } })
    expect(await page(last)).toEqual({ ids: ids.slice(4), links: { first, last, prev: link(2), next: null } })
    expect(await page(link(1))).toEqual({ ids: ids.slice(1, 3), links: { first, last, prev: link(0), next: link(3) } })
    expect(await page(link(8))).toEqual({ ids: [], links: { first, last, prev: link(6), next: null } })
    const all = `${base}/endpoints?page[offset]=0&page[limit]=20`
    expect(await page(`${base}/endpoints`)).toEqual({ ids, links: { first: all, last: all, prev: null, next: null } })
    const most = `${base}/endpoints?page[offset]=0&page[limit]=100`
    expect((await page(`${base}/endpoints?page[limit]=101`)).links).toMatchObject({ first: most, last: most })
  })

  it.each(['page[limit]=0', 'page[limit]=x', 'page[offset]=-1', 'page[offset]=1.5', 'page[limit]='])(
    'refuses the page %s',
    async (query) => {
      const { owner, base } = await newPlace(kind)
      const reply = await owner.get(`${base}/endpoints?${query}`)
      expect(reply.status).toBe(400)
      expect(fieldsOf(reply)).toEqual([`query.${query.split('=')[0]}`])
    },
  )

  it('resets its failing time when its URL changes, and only then', async () => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const failingSince = new Date(Date.now() - 60_000)
    await control.update(webhookEndpoints).set({ failingSince }).where(eq(webhookEndpoints.id, id))
    await patchEndpoint(place, id, { description: 'the same receiver', signing_secret: 'another secret' })
    expect((await endpointRow(id)).failingSince).toEqual(failingSince)
    await patchEndpoint(place, id, { url: 'http://127.0.0.1:9/another' })
    expect((await endpointRow(id)).failingSince).toBeNull()
  })

  it('signs once if the secret was replaced by the same one', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url, signing_secret: 'the first secret' })
    for (const secret of ['the first secret', 'the second secret', 'the second secret'])
      expect(await patchEndpoint(place, id, { signing_secret: secret })).toMatchObject({ status: 200 })
    await sendTest(place, id)
    await untilStatuses(id, 'success')
    const [received] = receiver.received
    expect(String(received?.headers['webhook-signature']).split(' ')).toHaveLength(2)
    for (const secret of ['the first secret', 'the second secret']) verified(received, secret)
  })

  it('deletes one with its deliveries and returns it', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const [id, other] = [await newEndpoint(place), await newEndpoint(place)]
    await insertDelivery(place, id)
    await insertDelivery(place, other)
    const { body: before } = await owner.get(`${base}/endpoints/${id}`)
    const deleted = await owner.delete(`${base}/endpoints/${id}`)
    expect({ status: deleted.status, body: deleted.body }).toEqual({ status: 200, body: before })
    expect(await owner.get(`${base}/endpoints/${id}`)).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found.endpoint', message: 'Not Found: Endpoint not found' } },
    })
    expect(await owner.delete(`${base}/endpoints/${id}`)).toMatchObject({ status: 404 })
    expect([await rowsOf(id), await rowsOf(other)]).toMatchObject([[], [{ endpointId: other }]])
  })

  it('deletes a long log before itself, and delays no event meanwhile', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const id = await newEndpoint(place)
    const kept = await insertDelivery(place, id)
    await insertMany(kept, 1_500)
    const { body: before } = await owner.get(`${base}/endpoints/${id}`)
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const { promise: held, resolve: hold } = Promise.withResolvers<void>()
    const holding = control.transaction(async (tx) => {
      await tx.select().from(webhookDeliveries).where(eq(webhookDeliveries.id, kept.delivery.id)).for('update')
      hold()
      await released
    })
    await held
    const deleting = owner.delete(`${base}/endpoints/${id}`)
    try {
      await vi.waitFor(async () => expect(await rowsOf(id)).toHaveLength(1), WAIT)
      await vi.waitFor(async () => expect(await blockedDeletions()).toBeGreaterThan(0), WAIT)
      expect(await endpointRow(id)).toMatchObject({ enabled: false })
      const { organization, ref } = place
      const event = { organization, projectRef: ref, type: 'v1.project.restored' as const, fields: {} }
      const publication = { actorUserId: undefined, now: sql`now()` }
      await control.transaction(async (tx) => {
        await tx.execute(sql`set local lock_timeout = '2s'`)
        expect(await publish(tx, event, publication)).toEqual([])
      })
    } finally {
      release()
      await holding
    }
    expect(await deleting).toMatchObject({ status: 200, body: before })
    expect(await rowsOf(id)).toEqual([])
    const audit = await control.select().from(auditLog).where(eq(auditLog.organizationId, place.organization.id))
    expect(audit.map(({ action, detail }) => [action, detail])).toContainEqual([
      'webhook.endpoint.disable',
      { endpoints: [id], reason: 'they are being deleted' },
    ])
  })

  it('leaves nothing of its sender after its deletion', async () => {
    const place = await newPlace(kind)
    const { owner, base } = place
    const receiver = await newReceiver()
    const id = await newEndpoint(place, { url: receiver.url })
    await sendTest(place, id)
    await untilStatuses(id, 'success')
    expect((await owner.delete(`${base}/endpoints/${id}`)).status).toBe(200)
    await vi.waitFor(async () => expect((await workerLogs(id)).join()).toContain('webhook_sender_removed'), WAIT)
  })

  describe('with sealed values that cannot be opened', () => {
    const BROKEN = 'gone.AAAA'

    it('is shown without its headers, alone and in the list, and accepts new ones', async () => {
      const place = await newPlace(kind)
      const { owner, base } = place
      const [id, other] = [await newEndpoint(place, { custom_headers: HEADERS }), await newEndpoint(place)]
      await control.update(webhookEndpoints).set({ sealedHeaders: BROKEN }).where(eq(webhookEndpoints.id, id))
      const alone = await owner.get(`${base}/endpoints/${id}`)
      expect(alone.status).toBe(200)
      expect(alone.body.data.attributes).not.toHaveProperty('custom_headers')
      const list = await owner.get(`${base}/endpoints`)
      expect(list.body.data).toMatchObject([alone.body.data, { id: other, attributes: { custom_headers: null } }])
      expect((await workerLogs(id)).join()).toContain('webhook_value_not_opened')
      const patched = await patchEndpoint(place, id, { custom_headers: HEADERS })
      expect(patched).toMatchObject({ status: 200, body: { data: { attributes: { custom_headers: HEADERS } } } })
    })

    it('accepts another secret, and signs only with that', async () => {
      const place = await newPlace(kind)
      const receiver = await newReceiver()
      const id = await newEndpoint(place, { url: receiver.url })
      const until = Date.now() + 3_600_000
      await control
        .update(webhookEndpoints)
        .set({ sealedSecret: BROKEN, oldSecrets: [{ sealed: BROKEN, until }] })
        .where(eq(webhookEndpoints.id, id))
      expect(await patchEndpoint(place, id, { signing_secret: 'another secret' })).toMatchObject({ status: 200 })
      expect((await endpointRow(id)).oldSecrets).toEqual([{ sealed: BROKEN, until }])
      await sendTest(place, id)
      await untilStatuses(id, 'success')
      const [received] = receiver.received
      verified(received, 'another secret')
      expect(String(received?.headers['webhook-signature']).split(' ')).toHaveLength(1)
    })

    it('is deleted, and the reply says so', async () => {
      const place = await newPlace(kind)
      const { owner, base } = place
      const id = await newEndpoint(place, { custom_headers: HEADERS })
      await control
        .update(webhookEndpoints)
        .set({ sealedHeaders: BROKEN, sealedSecret: BROKEN })
        .where(eq(webhookEndpoints.id, id))
      expect(await owner.delete(`${base}/endpoints/${id}`)).toMatchObject({ status: 200, body: { data: { id } } })
      expect(await owner.get(`${base}/endpoints/${id}`)).toMatchObject({ status: 404 })
    })
  })

  it('deletes all of the place and no others', async () => {
    const place = await newPlace(kind)
    const others = [await newPlace('projects', place.organization), await newPlace('projects')]
    if (kind === 'projects') others.push(await newPlace('organizations', place.organization))
    const kept = await Promise.all(others.map((other) => newEndpoint(other)))
    const ids = [await newEndpoint(place), await newEndpoint(place)]
    const deleted = await place.owner.delete(`${place.base}/endpoints`)
    expect(deleted).toMatchObject({ status: 200, body: { data: ids.map((id) => endpointView(place, id)) } })
    expect(Object.keys(deleted.body)).toEqual(['data'])
    expect((await place.owner.delete(`${place.base}/endpoints`)).body).toEqual({ data: [] })
    for (const id of kept) expect(await endpointRow(id)).toMatchObject({ id })
  })

  it('accepts 100 endpoints and no more, however many arrive at once', async () => {
    const place = await newPlace(kind)
    const { id, userId } = place.organization
    const rows = Array.from({ length: 98 }, () => ({
      organizationId: id,
      projectRef: place.ref,
      url: VALID.url,
      enabled: false,
      eventTypes: ['*' as const],
      sealedSecret: 'none',
      createdBy: userId,
      createdAt: new Date(),
    }))
    await control.insert(webhookEndpoints).values(rows)
    const replies = await Promise.all(Array.from({ length: 6 }, () => postEndpoint(place)))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 201, 400, 400, 400, 400])
    expect(replies.find(({ status }) => status === 400)?.body.error).toMatchObject({
      code: 'bad_request.endpoint.too_many',
      description: expect.stringContaining('100'),
    })
    await newEndpoint(await newPlace('projects', place.organization))
  })
})

describe.each(KINDS)('the id of an endpoint of /v2/%s', (kind) => {
  it('is valid in capitals too', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const signing_secret = 'the next secret'
    const patched = await patchEndpoint(place, id.toUpperCase(), { signing_secret, custom_headers: HEADERS })
    expect(patched).toMatchObject({ status: 200, body: { data: { id, attributes: { custom_headers: HEADERS } } } })
    expect((await place.owner.get(`${place.base}/endpoints/${id}`)).body).toEqual(patched.body)
    const { links } = (await deliveriesOf(place, id.toUpperCase())).body
    expect(links.first).toBe(`${place.base}/endpoints/${id}/deliveries?page[size]=20`)
    expect((await sendTest(place, id.toUpperCase())).status).toBe(201)
    await untilStatuses(id, 'success')
    expect(verified(receiver.received[0], signing_secret).payload).toMatchObject({ is_test: true })
  })
})

describe.each(KINDS)('the visibility of /v2/%s/…/webhooks', (kind) => {
  it('shows custom headers only to callers who may read secrets', async () => {
    const place = await newPlace(kind)
    const { organization, base } = place
    const id = await newEndpoint(place, { custom_headers: HEADERS })
    for (const role of ['owner', 'administrator', 'developer'] as const) {
      const { body } = await (await newMember(organization, role)).get(`${base}/endpoints/${id}`)
      expect(body.data.attributes.custom_headers).toEqual(HEADERS)
    }
    const reader = await newMember(organization, 'read-only')
    for (const path of [`${base}/endpoints/${id}`, `${base}/endpoints`]) {
      const reply = await reader.get(path)
      expect(reply.status).toBe(200)
      expect(JSON.stringify(reply.body)).not.toMatch(/custom_headers|of-the-receiver/)
    }
  })

  it('shows custom headers to no token without the scope for secrets', async () => {
    const place = await newPlace(kind)
    const { organization, base } = place
    const id = await newEndpoint(place, { custom_headers: HEADERS })
    const limited = await tokenOf(organization.userId, { scopes: ['projects:read', 'organizations:read'] })
    const reply = await limited.get(`${base}/endpoints/${id}`)
    expect(reply.status).toBe(200)
    expect(JSON.stringify(reply.body)).not.toMatch(/of-the-receiver/)
  })

  it('sends custom headers to no other address for a caller who does not see them', async () => {
    const place = await newPlace(kind)
    const { organization, base } = place
    const id = await newEndpoint(place, { url: 'http://127.0.0.1:9/a', custom_headers: HEADERS })
    const scopes = ['projects:write', 'organizations:write'] as const
    const limited = await tokenOf(organization.userId, { scopes: [...scopes] })
    const patch = (attributes: object) =>
      limited.patch(`${base}/endpoints/${id}`, { data: { type: 'endpoint', attributes } })
    const { url, sealedHeaders } = await endpointRow(id)
    for (const other of ['http://127.0.0.1:8/a', 'http://localhost:9/a', 'https://127.0.0.1:9/a']) {
      expect(await patch({ url: other })).toMatchObject({
        status: 400,
        body: {
          error: {
            code: 'bad_request.validation_failed',
            issues: [{ code: 'missing', meta: { field: 'body.data.attributes.custom_headers' } }],
          },
        },
      })
      expect(await endpointRow(id)).toMatchObject({ url, sealedHeaders })
    }
    expect((await patch({ url: 'http://127.0.0.1:9/b' })).status).toBe(200)
    expect((await patch({ url: 'http://127.0.0.1:8/b', custom_headers: null })).status).toBe(200)
    expect(await endpointRow(id)).toMatchObject({ url: 'http://127.0.0.1:8/b', sealedHeaders: null })
    expect((await patch({ url: 'http://127.0.0.1:7/b' })).status).toBe(200)
    const own = await newEndpoint(place, { url: 'http://127.0.0.1:9/a', custom_headers: HEADERS })
    expect((await patchEndpoint(place, own, { url: 'http://127.0.0.1:8/a' })).status).toBe(200)
  })

  it('answers the same for an id of another organization as for an unknown one', async () => {
    const place = await newPlace(kind)
    const { owner, organization } = place
    const elsewhere = [
      await newPlace('projects', organization),
      await newPlace('organizations', kind === 'projects' ? organization : undefined),
      await newPlace(kind),
    ]
    for (const other of elsewhere) {
      const id = await newEndpoint(other)
      const { delivery } = await insertDelivery(other, id)
      const calls: [string, (id: string) => ReturnType<typeof owner.get>, string][] = [
        ['endpoint', (id) => owner.get(`${place.base}/endpoints/${id}`), id],
        ['endpoint', (id) => patchEndpoint(place, id, { enabled: false }), id],
        ['endpoint', (id) => patchEndpoint(place, id, {}), id],
        ['endpoint', (id) => owner.delete(`${place.base}/endpoints/${id}`), id],
        ['endpoint', (id) => deliveriesOf(place, id), id],
        ['endpoint', (id) => sendTest(place, id), id],
        ['delivery', (id) => owner.get(`${place.base}/deliveries/${id}`), delivery.id],
        ['delivery', (id) => retry(place, id), delivery.id],
      ]
      const before = [await endpointRow(id), await rowsOf(id)]
      for (const [noun, call, theirs] of calls) {
        const reply = await call(theirs)
        expect(reply).toMatchObject({ status: 404, body: { error: { code: `not_found.${noun}` } } })
        expectSameError(reply, await call(NOBODY))
        expect(await call('no-uuid')).toMatchObject({
          status: 400,
          body: { error: { code: 'bad_request.validation_failed', issues: [{ meta: { field: 'path.id' } }] } },
        })
      }
      expect([await endpointRow(id), await rowsOf(id)]).toEqual(before)
    }
  })
})

describe('a member of only one project', () => {
  it("has access to that project's endpoints, none to another's, and only reads the organization's", async () => {
    const organization = await newOrganization()
    const [mine, other] = [await newPlace('projects', organization), await newPlace('projects', organization)]
    const all = await newPlace('organizations', organization)
    const userId = await newUser()
    await addMember(organization.id, userId, 'administrator', mine.ref ?? undefined)
    const owner = await tokenOf(userId)
    expect((await postEndpoint({ ...mine, owner })).status).toBe(201)
    expect((await postEndpoint({ ...other, owner })).status).toBe(404)
    expect((await postEndpoint({ ...all, owner })).status).toBe(403)
    await newEndpoint(all, { custom_headers: HEADERS })
    expect(JSON.stringify((await owner.get(`${all.base}/endpoints`)).body)).not.toContain('of-the-receiver')
    const [{ createdBy } = {}] = await control
      .select({ createdBy: webhookEndpoints.createdBy })
      .from(webhookEndpoints)
      .where(eq(webhookEndpoints.projectRef, mine.ref ?? ''))
    expect(createdBy).toBe(userId)
  })

  it("sees nothing of the other projects in the deliveries to the organization's endpoints", async () => {
    const all = await newPlace('organizations')
    const { organization, base } = all
    const [mine, other] = [await newPlace('projects', organization), await newPlace('projects', organization)]
    const id = await newEndpoint(all)
    const shared = await insertDelivery(all, id)
    const seen = await insertDelivery(mine, id)
    const hidden = await insertDelivery(other, id)
    await insertDelivery(all, id, { type: 'v1.organization.member.role.assigned' })
    const owner = await newMember(organization, 'administrator', mine.ref ?? undefined)
    const { body } = await deliveriesOf({ ...all, owner }, id)
    expect(body.data.map(({ id }: { id: string }) => id)).toEqual([seen.delivery.id, shared.delivery.id])
    expect((await owner.get(`${base}/deliveries/${seen.delivery.id}`)).status).toBe(200)
    const theirs = await owner.get(`${base}/deliveries/${hidden.delivery.id}`)
    expect(theirs.status).toBe(404)
    expectSameError(theirs, await owner.get(`${base}/deliveries/${NOBODY}`))
    expect((await deliveriesOf(all, id)).body.data).toHaveLength(4)
  })

  it("sees that project's branches too, like the project itself", async () => {
    const all = await newPlace('organizations')
    const { organization, base } = all
    const [mine, other] = [await newPlace('projects', organization), await newPlace('projects', organization)]
    const branchOf = async ({ ref }: Place) =>
      placeOf(organization, await insertProject(organization, { parentRef: ref }))
    const id = await newEndpoint(all)
    const seen = await insertDelivery(await branchOf(mine), id)
    const hidden = await insertDelivery(await branchOf(other), id)
    const owner = await newMember(organization, 'administrator', mine.ref ?? undefined)
    const { body } = await deliveriesOf({ ...all, owner }, id)
    expect(body.data.map(({ id }: { id: string }) => id)).toEqual([seen.delivery.id])
    expect((await owner.get(`${base}/deliveries/${seen.delivery.id}`)).status).toBe(200)
    expect((await owner.get(`${base}/deliveries/${hidden.delivery.id}`)).status).toBe(404)
  })

  it('finds all visible deliveries by links, each page of which reads a limited part of the log', async () => {
    const all = await newPlace('organizations')
    const { organization } = all
    const [mine, other] = [await newPlace('projects', organization), await newPlace('projects', organization)]
    const id = await newEndpoint(all)
    const [oldest, older] = [await insertDelivery(mine, id), await insertDelivery(mine, id)]
    await insertMany(await insertDelivery(other, id), 5_000)
    const newest = await insertDelivery(mine, id)
    const owner = await newMember(organization, 'administrator', mine.ref ?? undefined)
    const page = async (path: string) => {
      const { body } = await owner.get(path)
      return { ids: body.data.map(({ id }: { id: string }) => id) as string[], links: body.links }
    }
    const list = `${all.base}/endpoints/${id}/deliveries`
    const first = await page(list)
    expect(first.ids).toEqual([newest.delivery.id])
    const second = await page(first.links.next)
    expect(second).toMatchObject({ ids: [older.delivery.id, oldest.delivery.id], links: { next: null } })
    const back = await page(second.links.prev)
    expect(back.ids).toEqual([])
    expect(await page(back.links.prev)).toMatchObject({ ids: [newest.delivery.id], links: { prev: null } })
    expect((await page(back.links.next)).ids).toEqual([older.delivery.id])
  })
})

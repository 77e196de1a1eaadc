import { randomUUID } from 'node:crypto'
import { eq, sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { describe, expect, inject, it, vi } from 'vitest'
import type { EventType, Payloads } from '../../src/model/event-types.ts'
import { projectTasks, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../src/model/tables/index.ts'
import { type NewEvent, publish } from '../../src/outbound/events/publish.ts'
import {
  addMember,
  control,
  newOrganization,
  newUser,
  type TestOrganization,
  tick,
  tokenOf,
  workerLogs,
} from '../support/api.ts'
import { createProject, newProject, untilGone, untilStatus } from '../support/projects.ts'
import { newReceiver, type Received, withStatus } from '../support/receiver.ts'
import { WAIT_MS } from '../support/wait.ts'
import {
  bringForward,
  deliveriesOf,
  endpointRow,
  eventRowsOf,
  INSTANT,
  insertDelivery,
  insertProject,
  KINDS,
  newEndpoint,
  newPlace,
  type Place,
  patchEndpoint,
  placeOf,
  rowsOf,
  SECRET,
  sendTest,
  untilStatuses,
  verified,
  WAIT,
} from '../support/webhooks.ts'

const only = (...types: EventType[]) => types.map((type) => ({ type }))
const now = sql`date_trunc('milliseconds', clock_timestamp())`

/** Publishes an event of the place as an operation would, without waking senders. */
const publishFor = ({ organization, ref }: Place, fields: { idempotencyKey?: string } = {}) =>
  control.transaction((tx) =>
    publish(
      tx,
      { organization, projectRef: ref, type: 'v1.project.status.changed', fields: STATUS, ...fields },
      { actorUserId: organization.userId, now },
    ),
  )
const STATUS: Payloads['v1.project.status.changed'] = { previous_status: 'UNKNOWN', current_status: 'UNKNOWN' }
const HOUR_MS = 3_600_000
const later = () => ({ status: 'pending' as const, attemptedAt: null, nextAt: new Date(Date.now() + HOUR_MS) })

const change = (previous_status: string, current_status: string) => ({
  type: 'v1.project.status.changed',
  previous_status,
  current_status,
})

/** Returns the fields of an event that not every event has. */
const ownFields = ({ type, payload }: { type: string; payload: unknown }) => ({ type, ...(payload as object) })

/** Returns a key that is unique among the events of the life below. */
const keyOf = ({ type, previous_status: before }: { type?: string; previous_status?: string }) => `${type} ${before}`

describe('the life of a project', () => {
  it('is reported to its organization and to itself, each event with its fields and its actor', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const [all, mine, others] = [await newReceiver(), await newReceiver(), await newReceiver()]
    await newEndpoint(await newPlace('organizations', organization), { url: all.url })
    const ref = await newProject(organization)
    const [place, neighbour] = [placeOf(organization, ref), await newPlace('projects', organization)]
    const endpoint = await newEndpoint(place, { url: mine.url })
    await newEndpoint(neighbour, { url: others.url })
    await newEndpoint(await newPlace('organizations'), { url: others.url })
    await newEndpoint(place, { url: others.url, enabled: false })
    await newEndpoint(place, {
      url: others.url,
      event_types: only('v1.project.branch.created', 'v1.project.transferred'),
    })

    const adminId = await newUser()
    await addMember(organization.id, adminId, 'administrator')
    const admin = await tokenOf(adminId)
    await admin.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    await owner.post(`/v1/projects/${ref}/restore`)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    await admin.post(`/v1/projects/${ref}/restart`)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    await owner.delete(`/v1/projects/${ref}`)
    await untilGone(owner, ref)

    const by = (user_id: string, events: object[]) =>
      events.map((event) => ({ organization_slug: slug, project_ref: ref, ...event, actor: { user_id } }))
    const created = by(organization.userId, [
      { type: 'v1.project.created', source: null },
      change('COMING_UP', 'ACTIVE_HEALTHY'),
    ])
    const after = [
      ...by(adminId, [
        change('ACTIVE_HEALTHY', 'PAUSING'),
        change('PAUSING', 'INACTIVE'),
        { type: 'v1.project.paused', reason: 'api_request' },
      ]),
      ...by(organization.userId, [
        change('INACTIVE', 'RESTORING'),
        change('RESTORING', 'ACTIVE_HEALTHY'),
        { type: 'v1.project.restored' },
      ]),
      ...by(adminId, [
        change('ACTIVE_HEALTHY', 'RESTARTING'),
        change('RESTARTING', 'ACTIVE_HEALTHY'),
        { type: 'v1.project.restarted' },
      ]),
      ...by(organization.userId, [
        change('ACTIVE_HEALTHY', 'GOING_DOWN'),
        change('GOING_DOWN', 'REMOVED'),
        { type: 'v1.project.removed' },
      ]),
    ]
    expect((await eventRowsOf(ref)).map(ownFields)).toEqual([...created, ...after])
    // The copies for one endpoint may overtake each other, but each carries its event's time.
    const sent = async ({ received }: { received: Received[] }, count: number) => {
      await vi.waitFor(() => expect(received).toHaveLength(count), WAIT)
      return received.map((one) => verified(one)).sort((a, b) => (a.id < b.id ? -1 : 1))
    }
    const sorted = (events: object[]) => events.toSorted((a, b) => keyOf(a).localeCompare(keyOf(b)))
    expect(sorted((await sent(all, 14)).map(ownFields))).toEqual(sorted([...created, ...after]))
    expect(sorted((await sent(mine, 12)).map(ownFields))).toEqual(sorted(after))
    expect(others.received).toEqual([])
    expect((await owner.get(`${place.base}/endpoints/${endpoint}`)).status).toBe(404)
  })

  it.each([
    ['create', 'COMING_UP', 'INIT_FAILED'],
    ['pause', 'PAUSING', 'PAUSE_FAILED'],
    ['restore', 'RESTORING', 'RESTORE_FAILED'],
    ['restart', 'RESTARTING', 'ACTIVE_UNHEALTHY'],
  ] as const)('publishes only a status change when it fails to %s', async (kind, during, failed) => {
    const organization = await newOrganization()
    const receiver = await newReceiver()
    const ref = await insertProject(organization, { status: during })
    await newEndpoint(placeOf(organization, ref), { url: receiver.url })
    const actorUserId = organization.userId
    const died = { state: 'running' as const, claim: randomUUID(), leaseUntil: new Date(0), attempts: 6 }
    await control.insert(projectTasks).values({ projectRef: ref, kind, actorUserId, dueAt: new Date(), ...died })
    await tick()
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), WAIT)
    const events = await eventRowsOf(ref)
    const place = { organization_slug: organization.slug, project_ref: ref, actor: { user_id: actorUserId } }
    expect(events.map(ownFields)).toEqual([{ ...place, ...change(during, failed) }])
    expect(ownFields(verified(receiver.received[0]))).toEqual({ ...place, ...change(during, failed) })
  })

  it('publishes its return to pausing when a restore is canceled', async () => {
    const organization = await newOrganization()
    const { owner, slug, userId } = organization
    const ref = await insertProject(organization, { status: 'RESTORING' })
    const running = { state: 'running' as const, claim: randomUUID(), leaseUntil: new Date(Date.now() + HOUR_MS) }
    await control.insert(projectTasks).values({ projectRef: ref, kind: 'restore', dueAt: new Date(), ...running })
    expect((await owner.post(`/v1/projects/${ref}/restore/cancel`)).status).toBe(200)
    expect((await eventRowsOf(ref)).map(ownFields)[0]).toEqual({
      organization_slug: slug,
      project_ref: ref,
      ...change('RESTORING', 'PAUSING'),
      actor: { user_id: userId },
    })
  })

  it('publishes nothing about a refused operation', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const taken = await insertProject(organization, { name: 'taken', status: 'COMING_UP' })
    const again = await owner.post('/v1/projects', { name: 'taken', organization_slug: slug, db_pass: 'password' })
    expect(again.status).toBe(409)
    for (const change of ['pause', 'restore', 'restart', 'restore/cancel'])
      expect((await owner.post(`/v1/projects/${taken}/${change}`)).status).toBe(409)
    expect((await owner.delete(`/v1/projects/${taken}`)).status).toBe(400)
    const ofOrganization = eq(webhookEvents.organizationId, organization.id)
    expect(await control.$count(webhookEvents, ofOrganization)).toBe(0)
  })
})

describe('an event', () => {
  it('becomes one delivery for each endpoint that subscribes to it, and none for any other', async () => {
    const organization = await newOrganization()
    const [place, all] = [await newPlace('projects', organization), await newPlace('organizations', organization)]
    const ofOrganization = [
      await newEndpoint(all),
      await newEndpoint(all, { event_types: only('v1.project.status.changed') }),
    ]
    const wanted = [
      ...ofOrganization,
      await newEndpoint(place),
      await newEndpoint(place, { event_types: only('v1.project.paused', 'v1.project.status.changed') }),
    ]
    const unwanted = [
      await newEndpoint(place, { enabled: false }),
      await newEndpoint(place, { event_types: only('v1.project.paused') }),
      await newEndpoint(all, { event_types: only('v1.project.paused') }),
      await newEndpoint(await newPlace('projects', organization)),
      await newEndpoint(await newPlace('projects')),
      await newEndpoint(await newPlace('organizations')),
    ]
    expect((await publishFor(place)).sort()).toEqual(wanted.sort())
    const messages = (await Promise.all(wanted.map(rowsOf))).flat()
    expect(new Set(messages.map(({ messageId }) => messageId)).size).toBe(4)
    expect(new Set(messages.map(({ eventId }) => eventId)).size).toBe(1)
    expect((await Promise.all(unwanted.map(rowsOf))).flat()).toEqual([])
    expect((await publishFor(all)).sort()).toEqual(ofOrganization.sort())
  })

  it('is posted as the specification of webhooks says, with the custom headers and the same for each endpoint but the id', async () => {
    const [receiver, other] = [await newReceiver(), await newReceiver()]
    const place = await newPlace('projects')
    const custom_headers = { Authorization: 'Bearer of-the-receiver', 'X-Tenant': 'acme' }
    const id = await newEndpoint(place, { url: `${receiver.url}?a=b`, custom_headers })
    const raw = 'sixteen letters!'
    const second = await newEndpoint(place, { url: other.url, signing_secret: raw })
    await publishFor(place)
    await Promise.all([bringForward(id), bringForward(second)])
    const [row] = await untilStatuses(id, 'success')
    await untilStatuses(second, 'success')
    const [request] = receiver.received
    expect(request?.path).toBe('/hook?a=b')
    expect(request?.headers).toMatchObject({
      'content-type': 'application/json',
      'user-agent': expect.stringMatching(/^Pilothouse-Webhooks\//),
      'webhook-id': row?.messageId,
      'webhook-timestamp': expect.stringMatching(/^\d{10}$/),
      'webhook-signature': expect.stringMatching(/^v1,[\w+/]{43}=$/),
      authorization: 'Bearer of-the-receiver',
      'x-tenant': 'acme',
    })
    const { id: messageId, ...body } = verified(request)
    expect(messageId).toBe(row?.messageId)
    expect(body).toEqual({
      type: 'v1.project.status.changed',
      timestamp: expect.stringMatching(INSTANT),
      payload: {
        organization_slug: place.organization.slug,
        project_ref: place.ref,
        ...STATUS,
        actor: { user_id: place.organization.userId },
      },
    })
    expect(Object.keys(JSON.parse(request?.body ?? ''))).toEqual(['id', 'type', 'timestamp', 'payload'])
    const { id: otherId, ...otherBody } = verified(other.received[0], raw)
    expect(otherBody).toEqual(body)
    expect(otherId).not.toBe(messageId)
    expect(() => verified(other.received[0])).toThrow()
    expect(() => verified(request && { ...request, body: `${request.body} ` })).toThrow()
  })

  it('exists once, however often it is published under one key at the same time', async () => {
    const place = await newPlace('projects')
    const endpoints = [await newEndpoint(place), await newEndpoint(place)]
    const pool = new pg.Pool({ connectionString: inject('controlUrl'), max: 20 })
    const db = drizzle(pool)
    const { organization, ref } = place
    const event: NewEvent = {
      organization,
      projectRef: ref,
      type: 'v1.project.restored',
      fields: {},
      idempotencyKey: `test/${randomUUID()}`,
    }
    const publishOnce = () => db.transaction((tx) => publish(tx, event, { actorUserId: undefined, now }))
    const woken = await Promise.all(Array.from({ length: 200 }, publishOnce)).finally(() => pool.end())
    expect(woken.filter((ids) => ids.length > 0).map((ids) => ids.sort())).toEqual([endpoints.sort()])
    expect(await eventRowsOf(ref ?? '')).toMatchObject([{ payload: { actor: null } }])
    expect((await Promise.all(endpoints.map(rowsOf))).map((rows) => rows.length)).toEqual([1, 1])
  })

  it('goes only to its own endpoints, and in its order, if many are published together', async () => {
    const [one, other] = [await newPlace('projects'), await newPlace('organizations')]
    const [ofOne, ofOther] = [
      await newEndpoint(one),
      await newEndpoint(other, { event_types: only('v1.project.paused') }),
    ]
    const events: NewEvent[] = [
      { organization: one.organization, projectRef: one.ref ?? null, type: 'v1.project.restored', fields: {} },
      { organization: other.organization, projectRef: null, type: 'v1.project.paused', fields: { reason: 'other' } },
      { organization: one.organization, projectRef: null, type: 'v1.project.restored', fields: {} },
      { organization: other.organization, projectRef: null, type: 'v1.project.restored', fields: {} },
      { organization: one.organization, projectRef: one.ref ?? null, type: 'v1.project.restarted', fields: {} },
    ]
    const woken = await control.transaction((tx) => publish(tx, events, { actorUserId: undefined, now }))
    expect(woken.sort()).toEqual([ofOne, ofOne, ofOther].sort())
    const typesOf = async (endpointId: string) => {
      const rows = await control
        .select({ type: webhookEvents.type })
        .from(webhookDeliveries)
        .innerJoin(webhookEvents, eq(webhookEvents.id, webhookDeliveries.eventId))
        .where(eq(webhookDeliveries.endpointId, endpointId))
        .orderBy(webhookEvents.id)
      return rows.map(({ type }) => type)
    }
    expect(await typesOf(ofOne)).toEqual(['v1.project.restored', 'v1.project.restarted'])
    expect(await typesOf(ofOther)).toEqual(['v1.project.paused'])
  })

  it('wakes 120 endpoints at once, which is more than one batch of messages holds', async () => {
    const organization = await newOrganization()
    const receiver = await newReceiver()
    const [place, all] = [await newPlace('projects', organization), await newPlace('organizations', organization)]
    const attributes = { url: receiver.url, event_types: only('v1.project.paused') }
    for (let made = 0; made < 120; made += 6)
      await Promise.all(Array.from({ length: 6 }, (_, n) => newEndpoint(n % 2 ? place : all, attributes)))
    const reply = await organization.owner.post(`/v1/projects/${place.ref}/pause`)
    expect(reply.status).toBe(200)
    await vi.waitFor(() => expect(receiver.received).toHaveLength(120), WAIT)
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(120)
    expect(await workerLogs('enqueue_failed')).toEqual([])
  })
})

/** Makes the receiver delay its 500. Resolves when a request has arrived, to the function that sends the answer. */
const holdFailure = (receiver: Awaited<ReturnType<typeof newReceiver>>) =>
  new Promise<() => void>((resolve) => {
    receiver.answer((_request, response) => resolve(() => response.writeHead(500).end()))
  })

describe.each(KINDS)('an endpoint of /v2/%s that changes while a delivery waits', (kind) => {
  it('once disabled skips the delivery for good, and receives no event of that time', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    await insertDelivery(place, id, later())
    await patchEndpoint(place, id, { enabled: false })
    expect(await rowsOf(id)).toMatchObject([{ status: 'skipped', errorCode: 'endpoint_disabled', attemptedAt: null }])
    const [shown] = (await deliveriesOf(place, id)).body.data
    expect(Date.parse(shown.attributes.attempt_timestamp)).toBeLessThan(Date.now() + HOUR_MS / 2)
    expect(await publishFor(place)).toEqual([])
    await patchEndpoint(place, id, { enabled: true })
    expect(await publishFor(place)).toEqual([id])
    await bringForward(id)
    await untilStatuses(id, 'skipped', 'success')
    expect(receiver.received).toHaveLength(1)
  })

  it('once disabled during an attempt records its result and skips the next one', async () => {
    const receiver = await newReceiver(() => {})
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const arrived = holdFailure(receiver)
    await insertDelivery(place, id, later())
    await bringForward(id)
    const answer = await arrived
    await patchEndpoint(place, id, { enabled: false })
    expect(await rowsOf(id)).toMatchObject([{ status: 'pending' }])
    answer()
    await untilStatuses(id, 'failure', 'skipped')
    await patchEndpoint(place, id, { enabled: true })
    await bringForward(id)
    await untilStatuses(id, 'failure', 'skipped')
    expect(receiver.received).toHaveLength(1)
  })

  it('is disabled by a 410 whose body never ends', async () => {
    const receiver = await newReceiver((_request, response) => {
      response.writeHead(410, { 'content-length': '10' }).write('gone', () => response.destroy())
    })
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    await insertDelivery(place, id, later())
    await bringForward(id)
    const rows = await untilStatuses(id, 'failure')
    expect(rows).toMatchObject([{ responseCode: 410, errorCode: 'connection_failed' }])
    expect(await endpointRow(id)).toMatchObject({ enabled: false })
  })

  it('receives the next attempt at the new url with the new headers and secret, with the same bytes, and no older events', async () => {
    const [old, next] = [await newReceiver(withStatus(500)), await newReceiver()]
    const place = await newPlace(kind)
    const id = await newEndpoint(place, {
      url: old.url,
      custom_headers: { 'x-old': 'old' },
      event_types: only('v1.project.paused'),
    })
    expect(await publishFor(place)).toEqual([])
    await insertDelivery(place, id, later())
    await bringForward(id)
    await untilStatuses(id, 'failure', 'pending')
    const signing_secret = 'the next secret'
    await patchEndpoint(place, id, {
      url: next.url,
      signing_secret,
      custom_headers: { 'x-new': 'new' },
      event_types: only('v1.project.status.changed'),
    })
    await bringForward(id)
    await untilStatuses(id, 'failure', 'success')
    expect([old.received.length, next.received.length]).toEqual([1, 1])
    expect(next.received[0]?.body).toBe(old.received[0]?.body)
    expect(verified(next.received[0], signing_secret)).toEqual(verified(old.received[0]))
    expect(next.received[0]?.headers).toMatchObject({ 'x-new': 'new' })
    expect(next.received[0]?.headers).not.toHaveProperty('x-old')
  })

  it('is tried at its next URL at once if the one before stopped answering', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    for (let n = 0; n < 30; n++) await insertDelivery(place, id, later())
    await bringForward(id)
    await vi.waitFor(async () => expect((await workerLogs(id)).join()).toContain('"breaker":"open"'), WAIT)
    await patchEndpoint(place, id, { url: receiver.url })
    // The limit is far shorter than the pause of a circuit breaker.
    await vi.waitFor(() => expect(receiver.received.length).toBeGreaterThan(10), { timeout: WAIT_MS })
  })

  it('signs with each secret of the last day, and afterwards only with the newest', async () => {
    const receiver = await newReceiver(withStatus(500))
    const place = await newPlace(kind)
    const secrets = [SECRET, 'second secret', 'third secret'] as const
    const id = await newEndpoint(place, { url: receiver.url })
    await insertDelivery(place, id, later())
    // A sweep that meets the sender at its end leaves the delivery to the next sweep.
    const untilSent = (count: number) =>
      vi.waitFor(
        async () => {
          await tick()
          expect((await rowsOf(id)).map(({ status }) => status)).toEqual([...Array(count).fill('failure'), 'pending'])
        },
        { ...WAIT, interval: 1_000 },
      )
    for (const [index, signing_secret] of secrets.entries()) {
      if (index > 0) await patchEndpoint(place, id, { signing_secret })
      await bringForward(id)
      await untilSent(index + 1)
      const request = receiver.received[index]
      for (const [other, secret] of secrets.entries()) {
        if (other <= index) expect(verified(request, secret).id).toBe(request?.headers['webhook-id'])
        else expect(() => verified(request, secret)).toThrow()
      }
    }
    const { oldSecrets } = await endpointRow(id)
    for (const { until } of oldSecrets) expect(until - Date.now()).toBeGreaterThan(23.9 * HOUR_MS)
    const ended = oldSecrets.map((old) => ({ ...old, until: Date.now() - 1 }))
    await control.update(webhookEndpoints).set({ oldSecrets: ended }).where(eq(webhookEndpoints.id, id))
    await bringForward(id)
    await untilSent(4)
    const last = receiver.received[3]
    expect(verified(last, secrets[2]).id).toBe(last?.headers['webhook-id'])
    expect(last?.headers['webhook-signature']).not.toContain(' ')
    await patchEndpoint(place, id, { signing_secret: SECRET })
    expect((await endpointRow(id)).oldSecrets).toHaveLength(1)
  })

  it('signs once with a secret that was set again, however it is spelled, and with ten old ones at most', async () => {
    const receiver = await newReceiver()
    const place = await newPlace(kind)
    const id = await newEndpoint(place, { url: receiver.url })
    const signatures = async () => {
      await sendTest(place, id)
      await vi.waitFor(() => expect(receiver.received).toHaveLength(1), WAIT)
      const request = receiver.received.pop()
      verified(request)
      return String(request?.headers['webhook-signature']).split(' ')
    }
    for (const signing_secret of ['second secret', SECRET]) await patchEndpoint(place, id, { signing_secret })
    expect(new Set(await signatures()).size).toBe(2)
    await patchEndpoint(place, id, { signing_secret: SECRET.replace(/=+$/, '') })
    expect(await signatures()).toHaveLength(2)
    for (let n = 0; n < 12; n++) await patchEndpoint(place, id, { signing_secret: `secret number ${n}` })
    await patchEndpoint(place, id, { signing_secret: SECRET })
    expect(await signatures()).toHaveLength(11)
  })

  it.each(['one', 'all'])(
    'once deleted (%s) receives nothing, and its current attempt leaves no row and no error',
    async (which) => {
      const receiver = await newReceiver()
      const place = await newPlace(kind)
      const id = await newEndpoint(place, { url: receiver.url })
      const arrived = holdFailure(receiver)
      await insertDelivery(place, id, later())
      await bringForward(id)
      const answer = await arrived
      await insertDelivery(place, id, later())
      const path = which === 'one' ? `${place.base}/endpoints/${id}` : `${place.base}/endpoints`
      expect((await place.owner.delete(path)).status).toBe(200)
      expect(await rowsOf(id)).toEqual([])
      answer()
      const lines = await vi.waitFor(async () => {
        const lines = await workerLogs(id)
        expect(lines.join('\n')).toContain('webhook_attempts')
        return lines
      }, WAIT)
      expect(lines.filter((line) => line.includes('"level":"error"'))).toEqual([])
      expect(await rowsOf(id)).toEqual([])

      receiver.answer(withStatus(200))
      const again = await newEndpoint(place, { url: receiver.url })
      expect(again).not.toBe(id)
      await bringForward(again)
      expect(await publishFor(place)).toEqual([again])
      await bringForward(again)
      await untilStatuses(again, 'success')
      expect(receiver.received).toHaveLength(2)
    },
  )
})

describe('a project that is deleted while deliveries wait', () => {
  it('still has them delivered', async () => {
    const organization: TestOrganization = await newOrganization()
    const receiver = await newReceiver()
    const ref = await createProject(organization)
    const place = placeOf(organization, ref)
    const id = await newEndpoint(place, { url: receiver.url, event_types: only('v1.project.removed') })
    await untilStatus(organization.owner, ref, 'ACTIVE_HEALTHY')
    await insertDelivery(place, id, later())
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    await bringForward(id)
    await untilStatuses(id, 'success', 'success')
    const types = receiver.received.map((received) => verified(received).type)
    expect(types.sort()).toEqual(['v1.project.paused', 'v1.project.removed'])
  })
})

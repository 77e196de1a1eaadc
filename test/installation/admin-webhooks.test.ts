import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { promisify } from 'node:util'
import { and, eq, sql } from 'drizzle-orm'
import { describe, expect, inject, it, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { auditLog, type DeliveryStatus, webhookDeliveries, webhookEvents } from '../../src/model/tables/index.ts'
import { control, newOrganization, type TestOrganization, tick } from '../support/api.ts'
import { createProject } from '../support/projects.ts'
import { newReceiver, withStatus } from '../support/receiver.ts'
import { WAIT_MS } from '../support/wait.ts'

const run = (...args: string[]) => readCommand(args)(control)
const outputOf = async (...args: string[]) => (await run(...args)).text

const SECRET = 'a secret of characters'
const NOWHERE = 'http://127.0.0.1:9/hook'

async function newEndpoint({ owner, slug }: TestOrganization, url = NOWHERE) {
  const attributes = { url, event_types: [{ type: '*' }], signing_secret: SECRET }
  const reply = await owner.post(`/v2/organizations/${slug}/webhooks/endpoints`, {
    data: { type: 'endpoint', attributes },
  })
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.data.id as string
}

const enable = ({ owner, slug }: TestOrganization, id: string, enabled: boolean) =>
  owner.patch(`/v2/organizations/${slug}/webhooks/endpoints/${id}`, {
    data: { type: 'endpoint', attributes: { enabled } },
  })

interface Row {
  status: DeliveryStatus
  /** The age of the event. */
  secondsAgo?: number
  attemptMs?: number
  dueInSeconds?: number
  errorCode?: string
  payload?: Record<string, unknown>
}

/** Adds a message as the sender left it: an event and its one delivery. */
async function newMessage({ id: organizationId }: TestOrganization, endpointId: string, row: Row) {
  const { status, secondsAgo = 60, attemptMs = 100, dueInSeconds, errorCode, payload = {} } = row
  const at = sql`date_trunc('milliseconds', now()) - ${secondsAgo} * interval '1 second'`
  const [event] = await control
    .insert(webhookEvents)
    .values({ organizationId, type: 'v1.project.paused', payload, publishedAt: at })
    .returning()
  const messageId = randomUUID()
  const tried = status === 'success' || status === 'failure'
  await control.insert(webhookDeliveries).values({
    messageId,
    eventId: event?.id ?? '',
    endpointId,
    trigger: 'event',
    status,
    nextAt: dueInSeconds === undefined ? at : sql`now() + ${dueInSeconds} * interval '1 second'`,
    attemptedAt: tried ? sql`${at} + ${attemptMs} * interval '1 millisecond'` : null,
    errorCode: errorCode ?? null,
    createdAt: at,
  })
  return messageId
}

/** Makes a waiting attempt due at once, as a user's retry does. */
const retriedNow = (messageId: string) =>
  control
    .update(webhookDeliveries)
    .set({ nextAt: sql`created_at + interval '9 seconds'` })
    .where(eq(webhookDeliveries.messageId, messageId))

const deliveriesOf = (endpointId: string) =>
  control.select().from(webhookDeliveries).where(eq(webhookDeliveries.endpointId, endpointId))

const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString()

describe('webhooks status', () => {
  it('shows waiting deliveries, the results of attempts and how long the first ones took', async () => {
    const organization = await newOrganization()
    const [id, quiet] = [await newEndpoint(organization), await newEndpoint(organization)]
    await enable(organization, quiet, false)
    await newMessage(organization, id, { status: 'pending', dueInSeconds: 300 })
    for (const attemptMs of [10, 20, 30]) await newMessage(organization, id, { status: 'success', attemptMs })
    await newMessage(organization, id, { status: 'failure', attemptMs: 900, errorCode: 'timeout' })
    await newMessage(organization, id, { status: 'failure', errorCode: 'bad_status', secondsAgo: 4000 })
    await retriedNow(await newMessage(organization, id, { status: 'success', attemptMs: 9_000 }))
    expect(await run('webhooks', 'status', '--organization', organization.slug)).toEqual({
      text: [
        `${id}  ${organization.slug}  127.0.0.1:9/hook`,
        '  pending    0 due, 1 later',
        '  last hour  success 4, timeout 1; first attempt after p50 20 ms, p99 900 ms',
        '',
        'endpoints  2, disabled 1',
        'pending    0 due, 1 later',
        'last hour  success 4, timeout 1; first attempt after p50 20 ms, p99 900 ms',
        'sweeper    nothing is overdue by more than 60 s',
      ].join('\n'),
      exitCode: 0,
    })
  })

  it('leaves out healthy endpoints, and reports nothing if there are none', async () => {
    const organization = await newOrganization()
    const status = () => run('webhooks', 'status', '--organization', organization.slug)
    expect(await status()).toEqual({
      text: [
        'endpoints  0, disabled 0',
        'pending    0 due, 0 later',
        'last hour  no attempts',
        'sweeper    nothing is overdue by more than 60 s',
      ].join('\n'),
      exitCode: 0,
    })
    const id = await newEndpoint(organization)
    await newMessage(organization, id, { status: 'success' })
    expect((await status()).text).not.toContain(id)
  })

  it('shows the owner and the address of each endpoint, without secret parts', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const ref = await createProject(organization)
    const attributes = { url: `${NOWHERE}?token=secret#part`, event_types: [{ type: '*' }], signing_secret: SECRET }
    const reply = await owner.post(`/v2/projects/${ref}/webhooks/endpoints`, { data: { type: 'endpoint', attributes } })
    const id = reply.body.data.id as string
    await newMessage(organization, id, { status: 'pending', dueInSeconds: 300 })
    const { text } = await run('webhooks', 'status', '--organization', slug)
    expect(text.split('\n')[0]).toBe(`${id}  ${slug}/${ref}  127.0.0.1:9/hook`)
  })

  it('fails when a delivery has been due for more than a minute', async () => {
    const organization = await newOrganization()
    const id = await newEndpoint(organization)
    await newMessage(organization, id, { status: 'pending', secondsAgo: 95 })
    // The delivery is marked as being sent, so that the Worker of this run leaves it alone.
    await control
      .update(webhookDeliveries)
      .set({ leaseUntil: new Date(Date.now() + 60_000), claim: randomUUID() })
      .where(eq(webhookDeliveries.endpointId, id))
    const env = { ...process.env, DATABASE_URL: inject('controlUrl') }
    const args = ['dev/admin.ts', 'webhooks', 'status', '--organization', organization.slug]
    await expect(promisify(execFile)('node', args, { env })).rejects.toMatchObject({
      code: 1,
      stdout: expect.stringMatching(
        /1 due, 0 later; the oldest is overdue by \d\d+ s[\s\S]*LATE: the oldest.*Nothing was sent within the last hour/,
      ),
    })
  })
})

describe('webhooks replay', () => {
  it('counts in a dry run and changes nothing', async () => {
    const organization = await newOrganization()
    const id = await newEndpoint(organization)
    const first = await newMessage(organization, id, { status: 'failure', secondsAgo: 300 })
    await newMessage(organization, id, { status: 'skipped', secondsAgo: 200 })
    const last = await newMessage(organization, id, { status: 'failure', secondsAgo: 100 })
    const before = await deliveriesOf(id)
    expect(await outputOf('webhooks', 'replay', id, '--since', ago(1000), '--dry-run')).toMatch(
      new RegExp(
        `^Nothing was changed.\nmessages that would be sent again: 3\nfirst .*Z  v1.project.paused  ${first}\nlast .*${last}$`,
      ),
    )
    expect(await deliveriesOf(id)).toEqual(before)
    expect(await control.$count(auditLog, replayed(organization))).toBe(0)
  })

  it('takes the messages of the range whose last delivery has the status, and no pending one', async () => {
    const organization = await newOrganization()
    const [id, other] = [await newEndpoint(organization), await newEndpoint(organization)]
    await newMessage(organization, id, { status: 'failure', secondsAgo: 500 })
    await newMessage(organization, id, { status: 'skipped', secondsAgo: 400 })
    await newMessage(organization, id, { status: 'success', secondsAgo: 300 })
    await newMessage(organization, id, { status: 'pending', secondsAgo: 200, dueInSeconds: 900 })
    await newMessage(organization, other, { status: 'failure', secondsAgo: 100 })
    const count = async (...args: string[]) => {
      const text = await outputOf('webhooks', 'replay', id, '--dry-run', ...args)
      return Number(/again: (\d+)/.exec(text)?.[1])
    }
    expect(await count('--since', ago(1000))).toBe(2)
    expect(await count('--since', ago(450))).toBe(1)
    expect(await count('--since', ago(1000), '--until', ago(450))).toBe(1)
    expect(await count('--since', ago(1000), '--status', 'skipped')).toBe(1)
    expect(await count('--since', ago(1000), '--status', 'failure')).toBe(1)
    expect(await count('--since', ago(1000), '--status', 'success')).toBe(1)
    expect(await count('--since', ago(1000), '--status', 'all')).toBe(3)
    expect(await count('--since', ago(50))).toBe(0)
    for (const payload of [{ is_test: false }, { is_test: true }])
      await newMessage(organization, id, { status: 'failure', secondsAgo: 20, payload })
    expect(await count('--since', ago(50))).toBe(1)
  })

  it('replays no message twice while it is pending, and records an audit entry', async () => {
    const organization = await newOrganization()
    const id = await newEndpoint(organization)
    const messageId = await newMessage(organization, id, { status: 'failure', secondsAgo: 300 })
    const since = ago(1000)
    // Both commands run at once: the second finds the row of the first, whether that is committed yet or not.
    const texts = await Promise.all([
      outputOf('webhooks', 'replay', id, '--since', since),
      outputOf('webhooks', 'replay', id, '--since', since),
    ])
    expect(texts.map((text) => /again: (\d)/.exec(text)?.[1]).sort()).toEqual(['0', '1'])
    expect(await outputOf('webhooks', 'replay', id, '--since', since)).toMatch(/^messages sent again: 0$/)
    const rows = await deliveriesOf(id)
    expect(rows.filter((row) => row.trigger === 'replay')).toMatchObject([{ messageId, attempt: 1 }])
    const entries = await control.select().from(auditLog).where(replayed(organization))
    expect(entries).toMatchObject([
      { actorUserId: null, detail: { endpoint: id, messages: 1, statuses: ['failure', 'skipped'] } },
    ])
  })

  it('sends the messages that a broken receiver missed again, under the same webhook-id', async () => {
    const organization = await newOrganization()
    const receiver = await newReceiver(withStatus(500))
    const id = await newEndpoint(organization, receiver.url)
    const since = ago(1)
    await run('organization', 'plan', organization.slug, 'pro')
    await until(() => expect(receiver.received).toHaveLength(1))
    await vi.waitFor(async () => expect(await deliveriesOf(id)).toHaveLength(2), { timeout: WAIT_MS })
    await enable(organization, id, false)
    await expect(run('webhooks', 'replay', id, '--since', since)).rejects.toThrow('the endpoint is disabled')
    await enable(organization, id, true)
    receiver.answer(withStatus(204))
    expect(await outputOf('webhooks', 'replay', id, '--since', since)).toMatch(/^messages sent again: 1 /)
    await until(() => expect(receiver.received).toHaveLength(2))
    const [before, after] = receiver.received
    expect(after?.headers['webhook-id']).toBe(before?.headers['webhook-id'])
    expect(after?.body).toBe(before?.body)
    await vi.waitFor(
      async () =>
        expect((await deliveriesOf(id)).map(({ trigger, status }) => [trigger, status]).sort()).toEqual([
          ['event', 'failure'],
          ['event', 'skipped'],
          ['replay', 'success'],
        ]),
      { timeout: WAIT_MS },
    )
  })

  it('takes 10,000 messages at once and says where to continue', async () => {
    const organization = await newOrganization()
    const id = await newEndpoint(organization)
    await control.execute(sql`
      with event as (
        insert into ${webhookEvents} (organization_id, type, payload, published_at)
        select ${organization.id}, 'v1.project.paused', '{}', date_trunc('milliseconds', now()) - n * interval '10 milliseconds'
        from generate_series(10012, 1, -1) n returning id, published_at
      )
      insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, status, next_at, created_at)
      select id, id, ${id}, 'event', 'skipped', published_at, published_at from event`)
    const text = await outputOf('webhooks', 'replay', id, '--since', ago(1000), '--dry-run')
    expect(text).toMatch(/sent again: 10000\n/)
    const [, since = ''] = /\n12 more do not fit into one replay: go on with --since (\S+)$/.exec(text) ?? []
    expect(await outputOf('webhooks', 'replay', id, '--since', since, '--dry-run')).toMatch(/sent again: 12\n/)
  })

  it.each([
    [['9'], 'no webhook endpoint has the id "9"'],
    [[randomUUID(), '--since', ago(10)], 'no webhook endpoint has the id'],
    [[randomUUID()], '--since is missing'],
    [[randomUUID(), '--since', 'yesterday'], '--since yesterday is not a time'],
    [[randomUUID(), '--since', '2026-02-31'], '--since 2026-02-31 is not a time'],
    [[randomUUID(), '--since', '2026-01-01T10:00'], 'is not a time'],
    [[randomUUID(), '--since', ago(10), '--until', 'x'], '--until x is not a time'],
    [[randomUUID(), '--since', ago(10), '--until', ago(20)], 'is not before'],
    [[randomUUID(), '--since', ago(-100)], 'is not before now'],
    [[randomUUID(), '--since', ago(15 * 86_400)], 'more than 14 days ago'],
    [[randomUUID(), '--since', ago(10), '--status', 'pending'], '--status pending is not one of'],
  ])('refuses %j', async (args, text) => {
    const refused = async () => run('webhooks', 'replay', ...args)
    await expect(refused()).rejects.toThrow(text)
  })
})

const replayed = ({ id }: TestOrganization) =>
  and(eq(auditLog.organizationId, id), eq(auditLog.action, 'webhook.endpoint.replay'))

/** Runs the cron until the sweeper has done its work. */
const until = (check: () => void) =>
  vi.waitFor(
    async () => {
      await tick()
      check()
    },
    { timeout: WAIT_MS, interval: 500 },
  )

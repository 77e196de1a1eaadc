import { randomUUID } from 'node:crypto'
import { eq, type SQL, sql } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { webhookDeliveries, webhookEndpoints } from '../../../src/model/tables/index.ts'
import type { Ports } from '../../../src/outbound/webhooks/attempt.ts'
import { createSender } from '../../../src/outbound/webhooks/delivery-loop.ts'
import { createAdmission } from '../../../src/outbound/webhooks/delivery-permits.ts'
import type { Resolution } from '../../../src/platform/net/dns.ts'
import { config, type Outbox, START, useOutbox } from './outbox.ts'

const SECOND_MS = 1000
const DAY_MS = 86_400_000
const RESOLVED: Resolution = { kind: 'addresses', addresses: ['93.184.216.34'] }

const outbox = useOutbox()

interface Stage {
  endpointId: string
  post?(): Promise<Response>
  resolve?(): Resolution
  execute?: Outbox['db']['execute']
  disableAfterDays?: number
  /** Called while the sender sets its alarm. */
  onAlarm?(): void
}

/** Makes a sender whose clock is moved by hand, and returns it with the alarms that it set. No attempt times out. */
function newSender({
  endpointId,
  post,
  resolve = () => RESOLVED,
  execute,
  disableAfterDays = 0,
  onAlarm = () => {},
}: Stage) {
  const time = { now: START }
  const alarms: number[] = []
  const errors: unknown[] = []
  let posts = 0
  const ports: Ports = {
    post: async () => {
      posts += 1
      return post ? post() : new Response()
    },
    timeout: (ms) => ({ signal: ms < SECOND_MS ? AbortSignal.timeout(0) : new AbortController().signal, clear() {} }),
    rules: { ownHosts: [], allowLoopback: false, resolver: { resolve: async () => resolve() } },
  }
  const ctx = {
    config: { ...config, WEBHOOK_DISABLE_AFTER_DAYS: disableAfterDays },
    requestId: 'test',
    db: { execute: execute ?? ((query: SQL) => outbox.db.execute(query)) },
    now: () => new Date(time.now),
    databaseNow: sql`${{ getSQL: () => sql`${new Date(time.now).toISOString()}::timestamptz` }}`,
    log: { info: () => {}, error: (...entry: unknown[]) => errors.push(entry) },
  } as unknown as SystemCtx
  const wakeAt = async (at: number) => {
    alarms.push(at - START)
    onAlarm()
  }
  const { wake } = createSender(ctx, { endpointId, ports, admission: createAdmission(() => time.now), wakeAt })
  return { wake, time, alarms, errors, posts: () => posts }
}

describe('an attempt that could not be made', () => {
  it('is made normally once names are resolved again, however often it was postponed', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    let resolution: Resolution = { kind: 'unavailable', reason: 'the resolver is down' }
    const sender = newSender({ endpointId, resolve: () => resolution })
    for (let n = 0; n < 25; n++) {
      await sender.wake({ plan: true })
      expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'pending', attempt: 1, claims: 0 }])
      sender.time.now += 30 * SECOND_MS
    }
    resolution = RESOLVED
    await sender.wake({ plan: true })
    expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'success', attempt: 1, claims: 1 }])
    expect(sender.posts()).toBe(1)
  })

  it('does not query the resolver or the database for every waiting delivery, and the log says why', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, ...Array.from({ length: 200 }, () => ({ dueMs: 0 })))
    let resolution: Resolution = { kind: 'unavailable', reason: 'the resolver is down' }
    let lookUps = 0
    const resolve = () => {
      lookUps += 1
      return resolution
    }
    const sender = newSender({ endpointId, resolve })
    await sender.wake()
    expect(lookUps).toBeLessThan(20)
    expect(sender.errors).toEqual([['webhook_postponed', { endpoint: endpointId, reason: 'the resolver is down' }]])
    await sender.wake()
    sender.time.now += 30 * SECOND_MS
    await sender.wake()
    expect(lookUps).toBeLessThan(21)
    resolution = RESOLVED
    sender.time.now += 30 * SECOND_MS
    await sender.wake()
    expect(sender.posts()).toBe(200)
  })

  it('is skipped if its event is gone, and the sender goes on', async () => {
    const endpointId = await outbox.newEndpoint()
    const [orphan] = await outbox.enqueue(endpointId, { dueMs: 0 }, { dueMs: 0 })
    await outbox.db
      .update(webhookDeliveries)
      .set({ eventId: randomUUID() })
      .where(eq(webhookDeliveries.id, orphan ?? ''))
    const sender = newSender({ endpointId })
    await sender.wake()
    const rows = await outbox.rowsOf(endpointId)
    expect(rows.find(({ id }) => id === orphan)).toMatchObject({ status: 'skipped', errorCode: 'event_expired' })
    expect(rows.filter(({ status }) => status === 'success')).toHaveLength(1)
    expect(sender.posts()).toBe(1)
  })

  it('is made if a user requested it, even if the receiver does not answer', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, ...Array.from({ length: 40 }, () => ({ dueMs: 0 })))
    const sender = newSender({ endpointId, post: () => Promise.reject(new Error('nobody listens')) })
    await sender.wake()
    const before = sender.posts()
    const [asked] = await outbox.enqueue(endpointId, { dueMs: 0 })
    await outbox.db
      .update(webhookDeliveries)
      .set({ asked: true, trigger: 'test' })
      .where(eq(webhookDeliveries.id, asked ?? ''))
    await sender.wake()
    expect(sender.posts()).toBe(before)
    await sender.wake({ asked: true })
    // A connection that fails at once is tried twice.
    expect(sender.posts()).toBe(before + 2)
    const rows = await outbox.rowsOf(endpointId)
    expect(rows.find(({ id }) => id === asked)).toMatchObject({ status: 'failure', errorCode: 'connection_failed' })
  })

  it('is postponed if the platform allows no more requests, and not retried at once', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    const sender = newSender({ endpointId, post: () => Promise.reject(new Error('Too many subrequests.')) })
    await sender.wake()
    expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'pending', attempt: 1, claims: 0 }])
    expect(sender.posts()).toBe(1)
  })
})

describe('a result', () => {
  it('is recorded after the database was unreachable for a moment, and not sent again', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    let failures = 0
    let isSent = false
    const execute = async (query: SQL) => {
      if (isSent && failures < 2) {
        failures += 1
        throw new Error('the database is starting up')
      }
      return outbox.db.execute(query)
    }
    const post = async () => {
      isSent = true
      return new Response()
    }
    const sender = newSender({ endpointId, post, execute: execute as Outbox['db']['execute'] })
    await sender.wake()
    expect(failures).toBe(2)
    expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'success', attempt: 1 }])
    expect(sender.posts()).toBe(1)
  })

  it('is recorded once if the answer to its record was lost, and its retry still has an alarm', async () => {
    const endpointId = await outbox.newEndpoint()
    let losing = false
    const execute = async (query: SQL) => {
      const result = await outbox.db.execute(query)
      const lost = losing && 'recorded' in (result.rows[0] ?? {})
      if (!lost) return result
      losing = false
      throw new Error('the connection was lost')
    }
    const post = async () => new Response(null, { status: 500 })
    const sender = newSender({ endpointId, post, execute: execute as Outbox['db']['execute'] })
    // The first wake always queries the database for planned deliveries.
    await sender.wake()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    losing = true
    await sender.wake()
    expect(losing).toBe(false)
    const [failed, planned] = await outbox.rowsOf(endpointId)
    expect([failed, planned]).toMatchObject([
      { status: 'failure', attempt: 1 },
      { status: 'pending', attempt: 2 },
    ])
    expect(sender.alarms).toEqual([(planned?.nextAt.getTime() ?? 0) - START])
    expect(sender.posts()).toBe(1)
  })
})

describe('an endpoint that failed for longer than WEBHOOK_DISABLE_AFTER_DAYS', () => {
  const failingSince = new Date(START - 8 * DAY_MS)
  const LONGEST_PAUSE_MS = 600 * SECOND_MS

  async function newFailing(post = async () => new Response(null, { status: 500 })) {
    const endpointId = await outbox.newEndpoint({ failingSince })
    const [id = ''] = await outbox.enqueue(endpointId, { dueMs: 0 })
    const sender = newSender({ endpointId, post, disableAfterDays: 7 })
    return { endpointId, id, sender, isEnabled: async () => (await outbox.endpointRow(endpointId))?.enabled }
  }

  it('has the whole schedule of its next event to succeed, and is disabled at its end', async () => {
    const { endpointId, sender, isEnabled } = await newFailing()
    for (let attempt = 1; attempt <= 4; attempt++) {
      await sender.wake()
      expect(await isEnabled()).toBe(true)
      expect(await outbox.rowsOf(endpointId)).toHaveLength(attempt + 1)
      sender.time.now += LONGEST_PAUSE_MS
    }
    await sender.wake()
    expect(await isEnabled()).toBe(false)
    const rows = await outbox.rowsOf(endpointId)
    expect(rows.map(({ status }) => status)).toEqual(Array(5).fill('failure'))
  })

  it('is treated as healthy if a later attempt succeeds', async () => {
    let posts = 0
    const { endpointId, sender, isEnabled } = await newFailing(async () => {
      posts += 1
      return new Response(null, { status: posts === 1 ? 500 : 200 })
    })
    await sender.wake()
    sender.time.now += LONGEST_PAUSE_MS
    await sender.wake()
    expect(await isEnabled()).toBe(true)
    expect(await outbox.endpointRow(endpointId)).toMatchObject({ failingSince: null })
  })

  it.each(['test', 'retry'] as const)('is not disabled by a %s that a user requested', async (trigger) => {
    const { id, sender, isEnabled } = await newFailing()
    await outbox.db
      .update(webhookDeliveries)
      .set({ asked: true, trigger, attempt: 6 })
      .where(eq(webhookDeliveries.id, id))
    await sender.wake()
    expect(sender.posts()).toBe(1)
    expect(await isEnabled()).toBe(true)
  })
})

describe('a result that comes after the end of its lease', () => {
  it('is discarded, because another sender has the delivery by then', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    const [late, timely] = [Promise.withResolvers<Response>(), Promise.withResolvers<Response>()]
    const first = newSender({ endpointId, post: () => late.promise })
    const second = newSender({ endpointId, post: () => timely.promise })
    const ends = [first.wake()]
    await expect.poll(() => first.posts()).toBe(1)
    second.time.now += 60 * SECOND_MS
    ends.push(second.wake())
    await expect.poll(() => second.posts()).toBe(1)
    late.resolve(new Response(null, { status: 500 }))
    await ends[0]
    expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'pending', attempt: 1, claims: 2 }])
    timely.resolve(new Response())
    await ends[1]
    expect(await outbox.rowsOf(endpointId)).toMatchObject([{ status: 'success', attempt: 1, responseCode: 200 }])
  })
})

describe('a failure of an endpoint', () => {
  it('that was disabled meanwhile plans no further attempt, even when it is enabled again', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: 0 })
    const answer = Promise.withResolvers<Response>()
    const sender = newSender({ endpointId, post: () => answer.promise })
    const enable = (enabled: boolean) =>
      outbox.db.update(webhookEndpoints).set({ enabled }).where(eq(webhookEndpoints.id, endpointId))
    const end = sender.wake()
    await expect.poll(() => sender.posts()).toBe(1)
    await enable(false)
    answer.resolve(new Response(null, { status: 500 }))
    await end
    await enable(true)
    sender.time.now += DAY_MS
    await sender.wake()
    expect(sender.posts()).toBe(1)
    expect(await outbox.rowsOf(endpointId)).toMatchObject([
      { status: 'failure', attempt: 1 },
      { status: 'skipped', attempt: 2, errorCode: 'endpoint_disabled' },
    ])
  })
})

describe('an alarm', () => {
  it('that fires while it is being set is planned again afterwards', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, { dueMs: SECOND_MS }, { dueMs: 60 * SECOND_MS })
    let hasFired = false
    const onAlarm = () => {
      if (hasFired) return
      hasFired = true
      sender.time.now += SECOND_MS
      void sender.wake({ plan: true })
    }
    const sender = newSender({ endpointId, onAlarm })
    await sender.wake({ plan: true })
    await expect.poll(() => sender.posts()).toBe(1)
    // During a claim, the end of its lease has an alarm too.
    await expect.poll(() => sender.alarms).toEqual(expect.arrayContaining([SECOND_MS, 60 * SECOND_MS]))
  })
})

describe('a round', () => {
  it('ends after a thousand deliveries, and plans the next one at once', async () => {
    const endpointId = await outbox.newEndpoint()
    await outbox.enqueue(endpointId, ...Array.from({ length: 1100 }, () => ({ dueMs: 0 })))
    const sender = newSender({ endpointId })
    await sender.wake()
    const made = sender.posts()
    expect(made).toBeGreaterThanOrEqual(1000)
    expect(made).toBeLessThan(1032)
    expect(sender.alarms).toContain(0)
    const statuses = async () => (await outbox.rowsOf(endpointId)).map(({ status }) => status)
    expect((await statuses()).filter((status) => status === 'pending')).toHaveLength(1100 - made)
    await sender.wake({ plan: true })
    expect(new Set(await statuses())).toEqual(new Set(['success']))
    expect(sender.posts()).toBe(1100)
  })
})

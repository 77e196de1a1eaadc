import { randomUUID } from 'node:crypto'
import { eq, type SQL, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, organizations, webhookDeliveries, webhookEndpoints } from '../../../src/model/tables/index.ts'
import { type NewEvent, publish } from '../../../src/outbound/events/publish.ts'
import {
  type ClaimedDelivery,
  claimDue,
  disable,
  nextDueMs,
  overdueEndpoints,
  type Runner,
  readBacklog,
  type Settlement,
  settle,
} from '../../../src/outbound/webhooks/delivery-store.ts'
import type { Writer } from '../../../src/platform/db/client.ts'
import { DATABASE_CLOCK } from '../../../src/platform/db/database-clock.ts'
import { at, START, URL_A, useOutbox } from './outbox.ts'

const SECOND_MS = 1000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const FIRST_ID = '00000000-0000-0000-0000-000000000000'

const outbox = useOutbox()

const claimAt = (endpointId: string, ms: number, count = 10) =>
  claimDue(outbox.db, at(ms), endpointId, randomUUID(), count)
const settleAt = (endpointId: string, ms: number, settlements: Settlement[]) =>
  settle(outbox.db, at(ms), endpointId, settlements)

const postponed = ({ id, claim }: ClaimedDelivery): Settlement => ({
  id,
  claim,
  status: 'pending',
  delayMs: 15 * SECOND_MS,
})
const failed = ({ id, claim }: ClaimedDelivery): Settlement => ({
  id,
  claim,
  status: 'failure',
  code: 500,
  errorCode: 'bad_status',
  attemptedAt: START,
  delayMs: 10 * SECOND_MS,
})

describe('a claim', () => {
  it('takes first attempts before retries until these are overdue by a minute, and then in the order of their time', async () => {
    const id = await outbox.newEndpoint()
    const retry = 2
    const [older, newer, overdue, fresh] = await outbox.enqueue(
      id,
      { dueMs: -70 * SECOND_MS },
      { dueMs: -1 * SECOND_MS },
      { dueMs: -61 * SECOND_MS, attempt: retry },
      { dueMs: -59 * SECOND_MS, attempt: retry },
    )
    const claimed: string[] = []
    for (let n = 0; n < 4; n++) claimed.push(...(await claimAt(id, 0, 1)).map((delivery) => delivery.id))
    expect(claimed).toEqual([older, overdue, newer, fresh])
  })

  it('takes requested attempts before all others', async () => {
    const id = await outbox.newEndpoint()
    const [first, asked] = await outbox.enqueue(
      id,
      { dueMs: -70 * SECOND_MS },
      { dueMs: 0, attempt: 3 },
      { dueMs: -1 * SECOND_MS },
    )
    await outbox.db
      .update(webhookDeliveries)
      .set({ asked: true })
      .where(eq(webhookDeliveries.id, asked ?? ''))
    expect((await claimAt(id, 0, 1)).map((delivery) => delivery.id)).toEqual([asked])
    expect((await claimAt(id, 0, 1)).map((delivery) => delivery.id)).toEqual([first])
  })

  it('reports an event that has expired instead of skipping it forever', async () => {
    const id = await outbox.newEndpoint()
    const [orphan, other] = await outbox.enqueue(id, { dueMs: 0 }, { dueMs: SECOND_MS })
    await outbox.db
      .update(webhookDeliveries)
      .set({ eventId: randomUUID() })
      .where(eq(webhookDeliveries.id, orphan ?? ''))
    const claimed = await claimAt(id, SECOND_MS)
    expect(claimed).toMatchObject([{ id: orphan, payload: null }, { id: other }])
  })

  it('is released by a postponed attempt, however often, and stays due, so that its delay is visible', async () => {
    const id = await outbox.newEndpoint()
    await outbox.enqueue(id, { dueMs: 0 })
    for (let n = 0; n < 25; n++) {
      const claimed = await claimAt(id, n * 15 * SECOND_MS)
      expect(claimed).toMatchObject([{ attempt: 1, claims: 1 }])
      expect(await settleAt(id, n * 15 * SECOND_MS, claimed.map(postponed))).toEqual({ recorded: 1, nextMs: 15_000 })
    }
    const nextAt = new Date(START)
    expect(await outbox.rowsOf(id)).toMatchObject([{ status: 'pending', attempt: 1, claims: 0, claim: null, nextAt }])
    expect(await claimAt(id, 24 * 15 * SECOND_MS + 14 * SECOND_MS)).toEqual([])
    const late = { graceMs: 60 * SECOND_MS, after: FIRST_ID, count: 1000 }
    expect(await overdueEndpoints(outbox.db, at(25 * 15 * SECOND_MS), late)).toContain(id)
  })
})

describe('with 100,000 first attempts and retries that are due later', () => {
  /** More rows than these statements ever need, and far fewer than wait. */
  const FEW = 2000
  let id: string

  beforeAll(async () => {
    id = await outbox.newEndpoint()
    for (const one of [id, await outbox.newEndpoint(), await outbox.newEndpoint()])
      await outbox.enqueue(one, { dueMs: 0 })
    await outbox.db.execute(sql`
      insert into ${webhookDeliveries} (message_id, event_id, endpoint_id, trigger, attempt, next_at, created_at)
      select gen_random_uuid(), event_id, endpoint_id, 'event', 1 + n % 2, now() + n * interval '1 second', now()
      from ${webhookDeliveries}, generate_series(60, 100059) n where endpoint_id = ${id}`)
    await outbox.db.execute(sql`analyze ${webhookDeliveries}`)
  })

  const CLOCKS: [string, SQL][] = [
    ['now', DATABASE_CLOCK],
    ['when all of them are due', sql`(select ${DATABASE_CLOCK} + interval '2 days')`],
  ]

  it.each(CLOCKS)('a claim reads few rows, %s', async (_name, clock) => {
    const cost = await costOf((db) => claimDue(db, clock, id, randomUUID(), 32))
    expect(cost.rows).toBeGreaterThan(0)
    expect(Math.max(cost.rows, cost.pages)).toBeLessThan(FEW)
  })

  it.each(CLOCKS)('the time of the next one is found in few rows, %s', async (_name, clock) => {
    const cost = await costOf((db) => nextDueMs(db, clock, id))
    expect(cost.rows).toBeGreaterThan(0)
    expect(Math.max(cost.rows, cost.pages)).toBeLessThan(FEW)
  })

  it.each(CLOCKS)('the search for what is overdue reads few rows, %s', async (_name, clock) => {
    const page = { graceMs: 5 * SECOND_MS, after: FIRST_ID, count: 1000 }
    const cost = await costOf((db) => overdueEndpoints(db, clock, page))
    expect(cost.rows).toBeGreaterThan(0)
    expect(Math.max(cost.rows, cost.pages)).toBeLessThan(FEW)
  })

  it('an event reads few rows in an organization whose other projects have 20,000 endpoints', async () => {
    const [organization] = await outbox.db
      .insert(organizations)
      .values({ slug: `org-${randomUUID()}`, name: 'Test', plan: 'enterprise' })
      .returning()
    const { id: organizationId = '', slug = '' } = organization ?? {}
    await outbox.db.execute(sql`
      with project as (
        insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password)
        select lpad(n::text, 20, 'p'), ${organizationId}, n, 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '', ''
        from generate_series(1, 201) n returning ref
      )
      insert into ${webhookEndpoints} (organization_id, project_ref, url, enabled, event_types, sealed_secret, created_by, created_at)
      select ${organizationId}, ref, ${URL_A}, true, '{*}', '', gen_random_uuid(), now()
      from project, generate_series(1, 100) where ref <> lpad('201', 20, 'p')`)
    await outbox.db.execute(sql`analyze ${webhookEndpoints}`)
    const event: NewEvent = {
      ...{ organization: { id: organizationId, slug }, projectRef: '201'.padStart(20, 'p') },
      ...{ type: 'v1.project.restored', fields: {} },
    }
    const publication = { actorUserId: undefined, now: DATABASE_CLOCK }
    const cost = await costOf((db) => publish(db as Pick<Writer, 'execute'>, event, publication))
    expect(cost.rows).toBeGreaterThan(0)
    expect(Math.max(cost.rows, cost.pages)).toBeLessThan(FEW)
  })

  interface Plan {
    'Actual Rows': number
    'Actual Loops': number
    'Rows Removed by Filter'?: number
    'Rows Removed by Join Filter'?: number
    'Shared Hit Blocks': number
    'Shared Read Blocks': number
    Plans?: Plan[]
  }

  /**
   * Returns what Postgres read for a statement: rows of all steps, including those that a filter removed, and pages.
   */
  async function costOf(work: (db: Runner) => Promise<unknown>) {
    let plan: Plan | undefined
    const explain = async (query: SQL) => {
      const { rows } = await outbox.db.execute(sql`explain (analyze, buffers, format json) ${query}`)
      plan = (rows[0]?.['QUERY PLAN'] as [{ Plan: Plan }] | undefined)?.[0].Plan
      return { rows: [] }
    }
    await work({ execute: explain })
    if (!plan) throw new Error('no plan')
    return { rows: rowsOf(plan), pages: plan['Shared Hit Blocks'] + plan['Shared Read Blocks'] }
  }

  const rowsOf = (plan: Plan): number =>
    ((plan['Rows Removed by Filter'] ?? 0) + (plan['Rows Removed by Join Filter'] ?? 0) + plan['Actual Rows']) *
      plan['Actual Loops'] +
    (plan.Plans ?? []).reduce((sum, below) => sum + rowsOf(below), 0)
})

describe('a settlement', () => {
  it('that is repeated is recorded once, and plans one retry', async () => {
    const id = await outbox.newEndpoint()
    await outbox.enqueue(id, { dueMs: 0 })
    const batch = (await claimAt(id, 0)).map(failed)
    expect(await settleAt(id, 0, batch)).toEqual({ recorded: 1, nextMs: 10_000 })
    const rows = await outbox.rowsOf(id)
    expect(rows.map(({ status, attempt }) => [status, attempt])).toEqual([
      ['failure', 1],
      ['pending', 2],
    ])
    expect(await settleAt(id, SECOND_MS, batch)).toEqual({ recorded: 0, nextMs: null })
    expect(await outbox.rowsOf(id)).toEqual(rows)
  })

  it('plans no attempt at an endpoint that was disabled meanwhile, and records why', async () => {
    const id = await outbox.newEndpoint()
    await outbox.enqueue(id, { dueMs: 0 })
    const claimed = await claimAt(id, 0)
    await outbox.db.update(webhookEndpoints).set({ enabled: false }).where(eq(webhookEndpoints.id, id))
    await settleAt(id, 0, claimed.map(failed))
    expect(await outbox.rowsOf(id)).toMatchObject([
      { attempt: 1, status: 'failure', errorCode: 'bad_status' },
      { attempt: 2, status: 'skipped', errorCode: 'endpoint_disabled', nextAt: new Date(START) },
    ])
  })
})

describe('an endpoint', () => {
  const disableAt = (id: string, fields: { url?: string; failingForMs?: number }) =>
    disable(outbox.db, at(0), id, { reason: 'a reason', url: URL_A, failingForMs: 0, requestId: 'test', ...fields })

  it('is disabled once, with its pending deliveries and an entry in the audit log', async () => {
    const id = await outbox.newEndpoint()
    await outbox.enqueue(id, { dueMs: HOUR_MS })
    expect([await disableAt(id, {}), await disableAt(id, {})]).toEqual([true, false])
    const endpoint = await outbox.endpointRow(id)
    expect(endpoint?.enabled).toBe(false)
    const skipped = { status: 'skipped', errorCode: 'endpoint_disabled', nextAt: new Date(START) }
    expect(await outbox.rowsOf(id)).toMatchObject([skipped])
    const audit = await outbox.db
      .select()
      .from(auditLog)
      .where(eq(auditLog.organizationId, endpoint?.organizationId ?? ''))
    expect(audit).toMatchObject([{ action: 'webhook.endpoint.disable', detail: { endpoint: id, reason: 'a reason' } }])
  })

  it('is not disabled if the answer came from a URL that it no longer has', async () => {
    const id = await outbox.newEndpoint()
    await outbox.enqueue(id, { dueMs: 0 })
    expect(await disableAt(id, { url: 'https://before.example.com/hook' })).toBe(false)
    expect(await outbox.endpointRow(id)).toMatchObject({ enabled: true })
    expect(await outbox.rowsOf(id)).toMatchObject([{ status: 'pending' }])
  })

  it.each([
    ['never failed is not disabled', null, false],
    ['has succeeded meanwhile and fails for only an hour is not disabled', HOUR_MS, false],
    ['fails for too long is disabled', DAY_MS, true],
  ])('that %s', async (_name, failingMs, disabled) => {
    const failingSince = failingMs === null ? null : new Date(START - failingMs)
    const id = await outbox.newEndpoint({ failingSince })
    expect(await disableAt(id, { failingForMs: DAY_MS })).toBe(disabled)
    expect(await outbox.endpointRow(id)).toMatchObject({ enabled: !disabled })
  })
})

describe('the backlog', () => {
  it('reports the age of the oldest delivery whose receiver does not fail', async () => {
    const before = await readBacklog(outbox.db, at(0))
    const [failing, healthy] = [await outbox.newEndpoint({ failingSince: new Date(START) }), await outbox.newEndpoint()]
    await outbox.enqueue(failing, { dueMs: -2 * DAY_MS })
    await outbox.enqueue(healthy, { dueMs: -DAY_MS }, { dueMs: SECOND_MS })
    expect(await readBacklog(outbox.db, at(0))).toEqual({ due: before.due + 2, oldestDueMs: DAY_MS })
  })
})

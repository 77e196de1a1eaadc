import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import type { SystemCtx } from '../../src/ctx.ts'
import { webhookAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { publish } from '../../src/outbound/events/publish.ts'
import { createSender } from '../../src/outbound/webhooks/delivery-loop.ts'
import { createAdmission } from '../../src/outbound/webhooks/delivery-permits.ts'
import { disable, overdueEndpoints, unclaimedOf } from '../../src/outbound/webhooks/delivery-store.ts'
import type { Writer } from '../../src/platform/db/client.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import type { Database } from './database.ts'
import type { Violation } from './oracles/evidence.ts'
import { PUBLIC, type Tenants } from './simulate.ts'

const ENCRYPTION_KEY = 'k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
const URL = 'https://stress.dev/'
const CONNECTIONS = 24
const ENDPOINTS = 4
const SENDERS = 3
const PUBLISHERS = 4
const RUN_MS = 5_000
const databaseNow = sql`date_trunc('milliseconds', clock_timestamp())`

/**
 * Runs publishers, several senders for each endpoint, sweepers, and users who disable and delete, all at once on real
 * connections and in real time: no statement may fail, as it would by a deadlock, and no delivery may be made twice.
 */
export async function stress(
  database: Database,
  tenants: Tenants,
): Promise<{ posts: number; violations: Violation[] }> {
  const violations: Violation[] = []
  const broken = (oracle: string, text: string) => violations.push({ oracle, text })
  // Statements may wait for locks here, unlike in the simulation.
  const options = '-c lock_timeout=0 -c deadlock_timeout=100ms'
  const pool = new pg.Pool({ connectionString: database.url, max: CONNECTIONS, options })
  const db = drizzle({ client: pool })
  const posts: string[] = []
  const endpoints: string[] = []
  const until = performance.now() + RUN_MS
  const isRunning = () => performance.now() < until
  const { organization } = tenants.first

  async function guarded(what: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work()
    } catch (error) {
      const { cause } = error as { cause?: unknown }
      broken('O10', `${what}: ${cause ?? error}`)
    }
  }

  async function create(at: number): Promise<void> {
    const id = crypto.randomUUID()
    const sealed = await seal(ENCRYPTION_KEY, 'a secret of the stress', webhookAssociatedData(id, 'secret'))
    await pool.query(
      `insert into webhook_endpoints (id, organization_id, url, enabled, event_types, sealed_secret, created_by, created_at)
       values ($1, $2, $4, true, '{*}', $3, $1, clock_timestamp())`,
      [id, organization.id, sealed, URL],
    )
    endpoints[at] = id
  }

  async function publishRepeatedly(): Promise<void> {
    const event = { type: 'v1.project.removed', organization, projectRef: null, fields: {} } as const
    while (isRunning()) {
      await guarded('publish', () =>
        db.transaction((tx) => publish(tx as unknown as Writer, event, { actorUserId: undefined, now: databaseNow })),
      )
    }
  }

  async function sendRepeatedly(at: number): Promise<void> {
    const ctx = {
      config: { ENCRYPTION_KEY, WEBHOOK_TIMEOUT_SECONDS: 20, WEBHOOK_DISABLE_AFTER_DAYS: 0 },
      db,
      databaseNow,
      now: () => new Date(),
      requestId: 'stress',
      log: {
        info: () => {},
        error: (event: string, fields: { error?: string }) =>
          broken('O10', `${event}: ${fields.error?.split('\n')[0]} ${/error: .*/.exec(fields.error ?? '')?.[0] ?? ''}`),
      },
    } as unknown as SystemCtx
    const ports = {
      post: async (_url: string, init: RequestInit) => {
        posts.push(new Headers(init.headers).get('webhook-id') ?? '')
        return new Response(null, { status: posts.length % 2 ? 204 : 500 })
      },
      timeout: (ms: number) => ({ signal: AbortSignal.timeout(ms), clear: () => {} }),
      rules: { ownHosts: [], allowLoopback: false, resolver: { resolve: async () => PUBLIC } },
    }
    const admission = createAdmission(Date.now)
    while (isRunning()) {
      const endpointId = endpoints[at] as string
      await createSender(ctx, { endpointId, ports, admission, wakeAt: async () => {} }).wake({ plan: true })
    }
  }

  async function sweepRepeatedly(): Promise<void> {
    const all = { graceMs: 0, after: '00000000-0000-0000-0000-000000000000', count: 100 }
    while (isRunning()) await guarded('sweep', () => overdueEndpoints(db, databaseNow, all))
  }

  const disabling = { reason: 'stress', url: URL, failingForMs: 0, requestId: 'stress' }

  /** Disables, updates, deletes and creates an endpoint again, as the API does. */
  async function changeRepeatedly(at: number): Promise<void> {
    for (let turn = 0; isRunning(); turn++) {
      const id = endpoints[at] as string
      if (turn % 3 === 0) await guarded('disable', () => disable(db, databaseNow, id, disabling))
      else if (turn % 3 === 1) await guarded('update', () => toggle(id))
      else {
        await guarded('delete', () => pool.query('delete from webhook_endpoints where id = $1', [id]))
        await create(at)
      }
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  const toggle = (id: string) =>
    db.transaction(async (tx) => {
      await tx.execute(sql`select from webhook_endpoints where id = ${id} for no key update`)
      await tx.execute(sql`update webhook_endpoints set enabled = false where id = ${id}`)
      await tx.execute(
        sql`update webhook_deliveries d set status = 'skipped' where ${unclaimedOf(sql`${id}`, databaseNow)}`,
      )
      await tx.execute(sql`update webhook_endpoints set enabled = true where id = ${id}`)
    })

  for (let at = 0; at < ENDPOINTS; at++) await create(at)
  const indexes = Array.from({ length: ENDPOINTS }, (_, at) => at)
  await Promise.all([
    ...Array.from({ length: PUBLISHERS }, publishRepeatedly),
    ...indexes.flatMap((at) => Array.from({ length: SENDERS }, () => sendRepeatedly(at))),
    ...indexes.map(changeRepeatedly),
    sweepRepeatedly(),
    sweepRepeatedly(),
  ])
  await pool.end()
  const twice = posts.length - new Set(posts).size
  if (twice > 0) broken('O8', `${twice} deliveries were made twice`)
  if (posts.length === 0) broken('O1', 'nothing was delivered')
  await database.client.query('delete from webhook_endpoints; delete from webhook_events')
  return { posts: posts.length, violations }
}

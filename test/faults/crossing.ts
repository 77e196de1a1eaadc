import { randomUUID } from 'node:crypto'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { publish } from '../../src/outbound/events/publish.ts'
import { settle } from '../../src/outbound/webhooks/delivery-store.ts'
import type { Writer } from '../../src/platform/db/client.ts'
import { until } from '../support/wire/installation.ts'
import type { Database } from './database.ts'
import type { Violation } from './oracles/evidence.ts'
import type { Tenants } from './simulate.ts'

const WAIT_MS_MAX = 10_000
const databaseNow = sql`clock_timestamp()`

/**
 * Records two results and deletes the endpoint between the first and the second: a row locked by somebody else holds
 * the recording there. Both must end without a deadlock, whichever row is locked first.
 */
export async function crossing(database: Database, tenants: Tenants): Promise<Violation[]> {
  const options = '-c lock_timeout=0 -c deadlock_timeout=100ms'
  const pool = new pg.Pool({ connectionString: database.url, max: 4, options })
  const violations = [...(await crossAt(0)), ...(await crossAt(1))]
  await pool.query('delete from webhook_events')
  await pool.end()
  return violations

  async function crossAt(held: 0 | 1): Promise<Violation[]> {
    const db = drizzle({ client: pool })
    const { endpointId, claim, deliveries } = await claimTwo()
    const holder = await pool.connect()
    await holder.query('begin')
    await holder.query('select from webhook_deliveries where id = $1 for update', [deliveries[held]])
    const failures = deliveries.map((id) => ({ id, claim, status: 'failure' as const, delayMs: 5_000 }))
    const recording = settle(db, databaseNow, endpointId, failures)
    await waiting(database, 1)
    const deletion = pool.query('delete from webhook_endpoints where id = $1', [endpointId])
    await waiting(database, 2)
    await holder.query('rollback')
    holder.release()
    const outcomes = await Promise.allSettled([recording, deletion])
    await pool.query('delete from webhook_endpoints where id = $1', [endpointId])
    return outcomes.flatMap((outcome) => {
      if (outcome.status === 'fulfilled') return []
      const { cause = outcome.reason } = outcome.reason as { cause?: unknown }
      return [{ oracle: 'O10', text: `results while the endpoint is being deleted: ${cause}` }]
    })
  }

  async function claimTwo() {
    const { organization } = tenants.first
    const [endpointId, claim] = [randomUUID(), randomUUID()]
    await pool.query(
      `insert into webhook_endpoints (id, organization_id, url, enabled, event_types, sealed_secret, created_by, created_at)
       values ($1, $2, 'https://crossing.dev/', true, '{*}', '', $1, clock_timestamp())`,
      [endpointId, organization.id],
    )
    const event = { type: 'v1.project.removed', organization, projectRef: null, fields: {} } as const
    const tx = drizzle({ client: pool }) as unknown as Writer
    for (let count = 0; count < 2; count++) await publish(tx, event, { actorUserId: undefined, now: databaseNow })
    const { rows } = await pool.query<{ id: string }>(
      `update webhook_deliveries set claim = $2, lease_until = clock_timestamp() + interval '1 minute'
       where endpoint_id = $1 returning id`,
      [endpointId, claim],
    )
    return { endpointId, claim, deliveries: rows.map(({ id }) => id) }
  }
}

const waiting = (database: Database, count: number) =>
  until(`${count} statements wait for a lock`, WAIT_MS_MAX, async () => {
    const [row] = await database.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    return row?.count === count || undefined
  })

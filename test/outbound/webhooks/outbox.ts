import { randomUUID } from 'node:crypto'
import { asc, eq, type SQL, sql } from 'drizzle-orm'
import { afterAll, beforeAll, inject } from 'vitest'
import { type ControlDb, openControlDatabase } from '../../../dev/seed.ts'
import { Config } from '../../../src/config.ts'
import { webhookAssociatedData } from '../../../src/model/secrets/associated-data.ts'
import { organizations, webhookDeliveries, webhookEndpoints, webhookEvents } from '../../../src/model/tables/index.ts'
import { seal } from '../../../src/platform/secrets/seal.ts'
import { newControlDatabase } from '../../support/control-databases.ts'

export const SETTINGS = {
  BASE_URL: 'https://api.pilothouse.dev',
  DATABASE_URL: 'postgres://nobody:none@127.0.0.1/none',
  ENGINE: 'host',
  NEON_PROXY: 'https://proxy.pilothouse.dev',
  HOST_URL: 'http://127.0.0.1:2',
  HOST_KEY: 'none',
  DATABASE_HOST: '127.0.0.1',
  DATABASE_PORT: '5432',
  ENCRYPTION_KEY: `k1:${Buffer.alloc(32).toString('base64')}`,
  S3_ENDPOINT: 'https://s3.pilothouse.dev',
  S3_BUCKET: 'none',
  S3_ACCESS_KEY_ID: 'none',
  S3_SECRET_ACCESS_KEY: 'none',
}
export const config = Config.parse(SETTINGS)

/** The time in these tests, which is fixed until it is set. */
export const START = Date.UTC(2020, 0, 1)
export const at = (ms: number): SQL => sql`${new Date(START + ms).toISOString()}::timestamptz`

export const URL_A = 'https://a.example.com/hook'

interface Waiting {
  attempt?: number
  /** Milliseconds from START. */
  dueMs: number
}

/** Makes a control database of its own: no Worker and no sweeper takes its rows. */
export function useOutbox() {
  let db: ControlDb
  let remove: () => Promise<void>

  beforeAll(async () => {
    const { url, drop } = await newControlDatabase(inject('adminUrl'), 'outbox')
    const opened = openControlDatabase(url)
    db = opened.db
    remove = async () => {
      await opened.close()
      await drop()
    }
  })
  afterAll(() => remove())

  async function newEndpoint(fields: Partial<typeof webhookEndpoints.$inferInsert> = {}): Promise<string> {
    const [organization] = await db
      .insert(organizations)
      .values({ slug: `org-${randomUUID()}`, name: 'Test', plan: 'enterprise' })
      .returning()
    if (!organization) throw new Error('no organization')
    const id = randomUUID()
    await db.insert(webhookEndpoints).values({
      id,
      organizationId: organization.id,
      url: URL_A,
      enabled: true,
      eventTypes: ['*'],
      sealedSecret: await seal(config.ENCRYPTION_KEY, 'a secret of the receiver', webhookAssociatedData(id, 'secret')),
      createdBy: randomUUID(),
      createdAt: new Date(START),
      ...fields,
    })
    return id
  }

  /** Adds a delivery of one event for each; returns their ids in the same order. */
  async function enqueue(endpointId: string, ...waiting: Waiting[]): Promise<string[]> {
    const [endpoint] = await db.select().from(webhookEndpoints).where(eq(webhookEndpoints.id, endpointId))
    const [event] = await db
      .insert(webhookEvents)
      .values({
        organizationId: endpoint?.organizationId ?? '',
        type: 'v1.project.paused',
        payload: { organization_slug: 'none', project_ref: null },
        publishedAt: new Date(START),
      })
      .returning()
    const rows = waiting.map(({ attempt = 1, dueMs }) => ({
      id: randomUUID(),
      messageId: randomUUID(),
      eventId: event?.id ?? '',
      endpointId,
      trigger: 'event' as const,
      attempt,
      nextAt: new Date(START + dueMs),
      createdAt: new Date(START),
    }))
    await db.insert(webhookDeliveries).values(rows)
    return rows.map(({ id }) => id)
  }

  return {
    get db() {
      return db
    },
    newEndpoint,
    enqueue,
    /** Returns the deliveries in the order of their attempts. */
    rowsOf: (endpointId: string) =>
      db
        .select()
        .from(webhookDeliveries)
        .where(eq(webhookDeliveries.endpointId, endpointId))
        .orderBy(asc(webhookDeliveries.attempt)),
    async endpointRow(id: string) {
      const [row] = await db.select().from(webhookEndpoints).where(eq(webhookEndpoints.id, id))
      return row
    },
  }
}
export type Outbox = ReturnType<typeof useOutbox>

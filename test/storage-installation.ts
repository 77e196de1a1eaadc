import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PutObjectCommand, paginateListObjectsV2 } from '@aws-sdk/client-s3'
import { eq } from 'drizzle-orm'
import { fetch as fetchWithSockets, type Request as SocketRequest } from 'miniflare'
import pg from 'pg'
import { createTestHarness } from 'wrangler'
import { freePort } from '../dev/ports.ts'
import { openControlDatabase, seedOwner } from '../dev/seed.ts'
import { startServices } from '../dev/services.ts'
import { buildWorker, startWorker } from '../dev/worker.ts'
import { openBlobs } from '../src/blobs/client.ts'
import { createCtx } from '../src/ctx.ts'
import { memberRoles, organizations } from '../src/db/schema/index.ts'
import type { LogFields, Bindings as WorkerBindings } from '../src/env.ts'
import { blobKey, blobPrefix } from '../src/storage/blob-key.ts'
import { as } from './api.ts'
import { clientOf, newBucket, newStorage } from './storage.ts'

type Bindings = Record<'vars' | 'secrets', Record<string, string>>

interface Options {
  /** Puts something in front of the bucket. */
  doorTo?(endpoint: string): Promise<string>
  serve?(bindings: Bindings, folder: string): Promise<Server>
}

interface Server {
  origin: string
  /** Runs what a minute of the clock would. */
  tick(): Promise<unknown>
  stop(): Promise<void>
}

async function serveInHarness({ vars, secrets }: Bindings): Promise<Server> {
  openWebSockets()
  const harness = createTestHarness({
    workers: [{ configPath: './wrangler.toml', vars, secrets }, { configPath: './src/builder/wrangler.toml' }],
  })
  const { origin } = (await harness.listen()).url
  const tick = () => harness.getWorker().scheduled({ cron: '* * * * *' })
  return { origin, tick, stop: () => harness.close() }
}

/**
 * As `npm start` does. A connection that breaks in the middle of a body is a matter of the runtime alone there; the harness
 * sends through a server of its own, which leaves the request after it without an answer.
 */
export async function serveLikeStart({ vars, secrets }: Bindings, folder: string): Promise<Server> {
  const bundle = join(folder, 'bundle')
  await buildWorker({ folder: bundle })
  const port = await freePort(0, 'api')
  const bindings = { ...vars, ...secrets }
  const { stop } = await startWorker({ bundle, port, bindings, folder: join(folder, 'worker') })
  return { origin: `http://127.0.0.1:${port}`, tick: () => Promise.reject(new Error('its own clock ticks')), stop }
}

/** One of its own: a sweep takes whichever projects there are, and no other test's may be among them. */
export async function startInstallation({ doorTo, serve = serveInHarness }: Options = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-storage-'))
  const services = await startServices({ folder, baseUrl: 'https://api.example.com', durable: false })
  const { secrets, controlUrl, adminUrl } = services
  const bucketUrl = services.vars.S3_ENDPOINT ?? ''
  const S3_ENDPOINT = doorTo ? await doorTo(bucketUrl) : bucketUrl
  const vars: Record<string, string> = { ...services.vars, S3_ENDPOINT, TEST_CLOCK: 'on' }
  const { origin, tick, stop } = await serve({ vars, secrets }, folder)
  const { db: control, close } = openControlDatabase(controlUrl)

  /** What the code under test works with in Node, and what it logs. */
  function ctxAt(at = new Date(), settings: Record<string, string> = {}) {
    const logged: LogFields[] = []
    const note = (event: string, fields?: LogFields) => logged.push({ event, ...fields })
    const bindings = { ...vars, ...secrets, ...settings } as unknown as WorkerBindings
    const ctx = createCtx({ bindings, waitUntil: () => {}, clock: String(at.getTime()) })
    return { ...ctx, log: { info: note, error: note }, logged }
  }

  async function newOrganization() {
    const slug = `org-${crypto.randomUUID()}`
    const { access_token } = await seedOwner(
      { controlUrl },
      { username: slug, email: `${slug}@example.com`, organization: { slug, name: 'Test' }, plan: 'enterprise' },
    )
    const [member] = await control
      .select({ id: organizations.id, userId: memberRoles.userId })
      .from(memberRoles)
      .innerJoin(organizations, eq(organizations.id, memberRoles.organizationId))
      .where(eq(organizations.slug, slug))
    if (!member) throw new Error('no organization')
    return { ...member, slug, owner: as(access_token, {}, origin) }
  }

  async function connect(database: string): Promise<pg.Client> {
    const url = new URL(adminUrl)
    url.pathname = `/${database}`
    const client = new pg.Client({ connectionString: url.href })
    await client.connect()
    return client
  }

  return {
    control,
    ctxAt,
    newOrganization,
    /** With a bucket in it. */
    async newStorage() {
      const storage = await newStorage(await newOrganization())
      const here = { ...storage, url: new URL(`/p/${storage.ref}/storage/v1`, origin).href }
      return { ...here, objects: clientOf(here, here.keys.service), bucket: await newBucket(here) }
    },
    tick,
    /** As the superuser. */
    connect,
    async sql<Row extends pg.QueryResultRow>(database: string, query: string, values: unknown[] = []): Promise<Row[]> {
      const client = await connect(database)
      try {
        return (await client.query<Row>(query, values)).rows
      } finally {
        await client.end()
      }
    },
    bytes: bytesIn(openBlobs(ctxAt().config), vars.S3_BUCKET ?? ''),
    async stop() {
      await stop()
      await close()
      await services.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
export type Installation = Awaited<ReturnType<typeof startInstallation>>
export type SweptStorage = Awaited<ReturnType<Installation['newStorage']>>

/** What the Worker fetches goes through Node's fetch, which opens none. */
function openWebSockets() {
  const fetchHttp = globalThis.fetch
  globalThis.fetch = (input, init) =>
    new Headers(init?.headers).has('upgrade')
      ? (fetchWithSockets(String(input), init as unknown as SocketRequest) as unknown as Promise<Response>)
      : fetchHttp(input, init)
}

const WRITERS = 20

/** The bucket itself, past all code under test. */
function bytesIn(client: ReturnType<typeof openBlobs>, Bucket: string) {
  async function put(ref: string, versions: readonly string[]): Promise<void> {
    const waiting = [...versions]
    const putNext = async () => {
      for (let version = waiting.pop(); version; version = waiting.pop()) {
        await client.send(new PutObjectCommand({ Bucket, Key: blobKey(ref, version), Body: 'bytes' }))
      }
    }
    await Promise.all(Array.from({ length: WRITERS }, putNext))
  }

  async function list(ref: string): Promise<{ version: string; at: number }[]> {
    const Prefix = blobPrefix(ref)
    const found = []
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) {
      for (const { Key = '', LastModified } of Contents) {
        found.push({ version: Key.slice(Prefix.length), at: LastModified?.getTime() ?? 0 })
      }
    }
    return found
  }

  return { put, list, versions: async (ref: string) => (await list(ref)).map(({ version }) => version) }
}

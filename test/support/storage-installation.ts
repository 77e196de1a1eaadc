import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PutObjectCommand, paginateListObjectsV2, type S3Client, UploadPartCommand } from '@aws-sdk/client-s3'
import { eq } from 'drizzle-orm'
import type pg from 'pg'
import { inject } from 'vitest'
import { openControlDatabase, seedOwner } from '../../dev/seed.ts'
import { startServices } from '../../dev/services.ts'
import { createCtx } from '../../src/ctx.ts'
import { memberRoles, organizations } from '../../src/model/tables/index.ts'
import type { Bindings as WorkerBindings } from '../../src/platform/bindings.ts'
import { openBucket } from '../../src/platform/blobs/bucket.ts'
import { fixedTime } from '../../src/platform/clock.ts'
import type { LogFields } from '../../src/platform/http/log.ts'
import { blobKey, blobPrefix } from '../../src/services/storage/blob-key.ts'
import { adminClient, instanceState } from '../instances.ts'
import { as } from './api.ts'
import { copyInstallation } from './installations.ts'
import { serveInstallation } from './serve.ts'
import { clientOf, newBucket, newStorage } from './storage.ts'
import type { Bindings, Server } from './worker.ts'

interface Options {
  /** Puts a proxy before the bucket. */
  proxyTo?(endpoint: string): Promise<string>
  serve?(bindings: Bindings, folder: string): Promise<Server>
}

/** Starts an installation of its own: a sweep takes any project, and no other test's may be among them. */
export async function startInstallation({ proxyTo, serve = serveInstallation }: Options = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-storage-'))
  copyInstallation(inject('begun'), folder)
  const services = await startServices({ folder, baseUrl: 'https://api.example.com', durable: false })
  const { secrets, controlUrl, host } = services
  const bucketUrl = services.vars.S3_ENDPOINT ?? ''
  const S3_ENDPOINT = proxyTo ? await proxyTo(bucketUrl) : bucketUrl
  const vars: Record<string, string> = { ...services.vars, S3_ENDPOINT }
  const { origin, tick, stop } = await serve({ vars, secrets }, folder)
  const { db: control, close } = openControlDatabase(controlUrl)

  /** Returns the context with which the code under test runs in Node, and its log. */
  function ctxAt(at = new Date(), settings: Record<string, string> = {}) {
    const logged: LogFields[] = []
    const note = (event: string, fields?: LogFields) => logged.push({ event, ...fields })
    const bindings = { ...vars, ...secrets, ...settings } as unknown as WorkerBindings
    const ctx = fixedTime.run(at.getTime(), () => createCtx({ bindings, waitUntil: () => {} }))
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

  const at = { url: host.url, run: host.run, key: secrets.HOST_KEY ?? '' }
  const connect = (ref: string): Promise<pg.Client> => adminClient(ref, { at })

  return {
    control,
    controlUrl,
    ctxAt,
    newOrganization,
    /** Makes a project with a bucket. */
    async newStorage(organization?: Awaited<ReturnType<typeof newOrganization>>) {
      const storage = await newStorage(organization ?? (await newOrganization()))
      const here = { ...storage, url: new URL(`/p/${storage.ref}/storage/v1`, origin).href }
      return { ...here, objects: clientOf(here, here.keys.service), bucket: await newBucket(here) }
    },
    tick,
    /** Returns the state of a project's instance. */
    stateOf: (ref: string) => instanceState(ref, at),
    /** Connects as the superuser. */
    connect,
    async sql<Row extends pg.QueryResultRow>(ref: string, query: string, values: unknown[] = []): Promise<Row[]> {
      const client = await connect(ref)
      try {
        return (await client.query<Row>(query, values)).rows
      } finally {
        await client.end()
      }
    },
    bytes: bytesIn(openBucket(ctxAt().config).client, vars.S3_BUCKET ?? ''),
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

const WRITERS = 20

/** Returns the bucket itself, without the code under test. */
function bytesIn(client: S3Client, Bucket: string) {
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

  /** Tells whether an upload in parts can continue. */
  const takesPart = (ref: string, version: string, UploadId: string): Promise<boolean> =>
    client
      .send(new UploadPartCommand({ Bucket, Key: blobKey(ref, version), UploadId, PartNumber: 100, Body: 'x' }))
      .then(
        () => true,
        () => false,
      )

  return { put, list, takesPart, versions: async (ref: string) => (await list(ref)).map(({ version }) => version) }
}

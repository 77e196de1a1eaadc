import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { json } from 'node:stream/consumers'
import { sql } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { requestCounts } from '../../../src/model/tables/index.ts'
import { startBucketProxy } from '../../support/bucket-proxy.ts'
import { WAIT } from '../../support/machine.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { exchange, refusal } from '../../support/storage.ts'
import { type Call, calling } from '../../support/storage-http.ts'
import { type Installation, type SweptStorage, startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'

const MIB = 1024 ** 2
/** More bytes than are cached after a read. */
const OLD = randomBytes(200_000)

let proxy: Awaited<ReturnType<typeof startBucketProxy>>
let installation: Installation
let storage: SweptStorage
let service: ReturnType<typeof calling>
/** Paths and tokens from before the outage. */
let signed: { download: string; upload: string }

beforeAll(async () => {
  installation = await startInstallation({
    serve: serveLikeStart,
    async proxyTo(endpoint) {
      proxy = await startBucketProxy(endpoint)
      return proxy.endpoint
    },
  })
  storage = await installation.newStorage()
  service = calling(storage, storage.keys.service)
  for (const name of ['old', 'moving', 'removed']) await done(`POST /object/${storage.bucket}/${name}`, { body: OLD })
  const { signedURL } = await done(`POST /object/sign/${storage.bucket}/old`, { body: { expiresIn: 600 } })
  const { url } = await done(`POST /object/upload/sign/${storage.bucket}/signed`)
  signed = { download: signedURL, upload: url }
})
afterAll(async () => {
  await installation.stop()
  await proxy.close()
})

async function done(request: string, call?: Call) {
  const reply = await service(request, call)
  expect(reply).toMatchObject({ status: 200 })
  return reply.body
}

const BYTES_UNAVAILABLE = {
  status: 503,
  body: refusal(
    503,
    'BytesUnavailable',
    'BytesUnavailable',
    'The bytes of objects cannot be reached: try again shortly',
  ),
}

const rows = () =>
  installation.sql<{ name: string; version: string }>(
    storage.ref,
    'select name, version from storage.objects order by name',
  )

const chunked = async (name: string, body: (string | Uint8Array)[], headers = {}) => {
  const { status, body: text } = await exchange(`${storage.url}/object/${storage.bucket}/${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${storage.keys.service}`, ...headers },
    body,
  })
  return { status, body: JSON.parse(text) }
}

const FORM = { 'content-type': 'multipart/form-data; boundary=x' }
const form = ['--x\r\ncontent-disposition: form-data; name=""; filename="a"\r\n\r\nabc', '\r\n--x--\r\n']

const needing: Record<string, (bucket: string) => Promise<unknown>> = {
  'an upload of a few bytes': (b) => service(`POST /object/${b}/new`, { body: 'new' }),
  'an upload of no bytes': (b) => service(`POST /object/${b}/new`, { body: '' }),
  'an upload of many bytes': (b) => service(`POST /object/${b}/new`, { body: randomBytes(3 * MIB) }),
  'an upload in chunks': () => chunked('new', ['a', 'b']),
  'an upload in chunks of many bytes': () => chunked('new', [randomBytes(5 * MIB), 'a']),
  'an upload in a form': () => chunked('new', form, FORM),
  'an upload over what stands there': (b) => service(`PUT /object/${b}/old`, { body: 'new' }),
  'an upload of many bytes over what stands there': (b) =>
    service(`PUT /object/${b}/old`, { body: randomBytes(3 * MIB) }),
  'a signed upload': () => service(`PUT ${signed.upload}`, { body: 'new' }),
  'a download': (b) => service(`GET /object/${b}/old`),
  'an authenticated download': (b) => service(`GET /object/authenticated/${b}/old`),
  'a part of a download': (b) => service(`GET /object/${b}/old`, { headers: { range: 'bytes=1-9' } }),
  'a signed download': () => service(`GET ${signed.download}`),
  'a copy': (b) => service('POST /object/copy', { body: { bucketId: b, sourceKey: 'old', destinationKey: 'new' } }),
}

const needingNone: Record<string, (bucket: string) => [string, Call?]> = {
  info: (b) => [`GET /object/info/${b}/old`],
  'a list': (b) => [`POST /object/list/${b}`, { body: { prefix: '' } }],
  'the signing of a download': (b) => [`POST /object/sign/${b}/old`, { body: { expiresIn: 60 } }],
  'the signing of an upload': (b) => [`POST /object/upload/sign/${b}/new`],
  'a move': (b) => ['POST /object/move', { body: { bucketId: b, sourceKey: 'moving', destinationKey: 'moved' } }],
  'a removal': (b) => [`DELETE /object/${b}/removed`],
}

describe('while the bucket refuses connections', () => {
  it.each(Object.keys(needing))('%s is answered with that error, and changes nothing', async (name) => {
    const before = await rows()
    await proxy.close()
    try {
      expect(await needing[name]?.(storage.bucket)).toMatchObject(BYTES_UNAVAILABLE)
    } finally {
      await proxy.open()
    }
    expect(await rows()).toEqual(before)
    expect((await installation.bytes.versions(storage.ref)).sort()).toEqual(before.map(({ version }) => version).sort())
  })

  // The test sends no more than is read before the answer: with more bytes the connection is reset, and the answer
  // lost.
  it.each([
    ['in one piece', { sent: 1 * MIB, more: 0, headers: { 'content-length': String(8 * MIB) } }],
    ['in parts', { sent: 10 * MIB, more: 5 * MIB, headers: { 'transfer-encoding': 'chunked' } }],
  ])(
    'an upload %s that was under way is answered with that error, and changes nothing',
    async (_, { sent, more, headers }) => {
      const before = await rows()
      const kept = await installation.bytes.versions(storage.ref)
      const alreadyCarried = proxy.carried()
      const outgoing = request(`${storage.url}/object/${storage.bucket}/new`, {
        method: 'POST',
        headers: { authorization: `Bearer ${storage.keys.service}`, ...headers },
      })
      const answer = once(outgoing, 'response')
      outgoing.write(randomBytes(sent))
      await vi.waitFor(() => expect(proxy.carried() - alreadyCarried).toBeGreaterThanOrEqual(sent), {
        timeout: WAIT_MS,
      })
      await proxy.close()
      try {
        if (more > 0) outgoing.write(randomBytes(more))
        const [incoming] = (await answer) as [IncomingMessage]
        expect({ status: incoming.statusCode, body: await json(incoming) }).toEqual(BYTES_UNAVAILABLE)
      } finally {
        outgoing.destroy()
        await proxy.open()
      }
      expect(await rows()).toEqual(before)
      expect(await installation.bytes.versions(storage.ref)).toEqual(kept)
    },
  )

  it('operations that need only rows continue, and everything works afterwards', async () => {
    await proxy.close()
    try {
      for (const request of Object.values(needingNone)) await done(...request(storage.bucket))
    } finally {
      await proxy.open()
    }
    expect((await rows()).map(({ name }) => name)).toEqual(['moved', 'old'])
    const get = async (path: string) =>
      (await fetch(storage.url + path, { headers: { authorization: `Bearer ${storage.keys.service}` } })).arrayBuffer()
    for (const path of [`/object/${storage.bucket}/old`, `/object/${storage.bucket}/moved`, signed.download]) {
      expect(OLD.equals(Buffer.from(await get(path))), path).toBe(true)
    }
    expect(await done(`PUT ${signed.upload}`, { body: 'new' })).toEqual({ Key: `${storage.bucket}/signed` })
  })
})

const TUS = { 'tus-resumable': '1.0.0' }
const BYTES = { ...TUS, 'content-type': 'application/offset+octet-stream' }
/** Begins a resumable upload with its first bytes. Returns its path. */
async function begin(name: string, size: number, sent: number): Promise<string> {
  const metadata = `bucketName ${btoa(storage.bucket)},objectName ${btoa(name)}`
  const { status, headers } = await service('POST /upload/resumable', {
    headers: { ...BYTES, 'upload-length': String(size), 'upload-metadata': metadata },
    body: randomBytes(sent),
  })
  expect([status, headers.get('upload-offset')]).toEqual([201, String(sent)])
  return `/upload/resumable/${headers.get('location')?.split('/').at(-1)}`
}

describe('a connection to the bucket that breaks', () => {
  it('inside a small object is answered with that error', async () => {
    await done(`POST /object/${storage.bucket}/small`, { body: 'small' })
    proxy.cut(1)
    expect(await service(`GET /object/${storage.bucket}/small`)).toMatchObject(BYTES_UNAVAILABLE)
    expect(await service(`GET /object/${storage.bucket}/small`)).toMatchObject({ status: 200, body: 'small' })
  })

  it('inside the last bytes of a resumable upload is answered with that error', async () => {
    const upload = await begin('cut', 8, 4)
    const rest = { headers: { ...BYTES, 'upload-offset': '4' }, body: 'rest' }
    proxy.cut(1)
    expect(await service(`PATCH ${upload}`, rest)).toMatchObject({ status: 503 })
    expect((await service(`PATCH ${upload}`, rest)).status).toBe(204)
  })
})

describe('the cancellation of a resumable upload', () => {
  const PART = 6 * MIB

  it('stops a running request, however long the bucket takes', async () => {
    const upload = await begin('cancelled', PART + 9, PART)
    const running = request(storage.url + upload, {
      method: 'PATCH',
      headers: {
        ...{ ...BYTES, authorization: `Bearer ${storage.keys.service}` },
        ...{ 'upload-offset': String(PART), 'content-length': '9' },
      },
    })
    const answer = once(running, 'response')
    running.write('12345678')
    await vi.waitFor(async () => {
      const leased = 'select id from pgbouncer.resumable_uploads where id = $1 and lease is not null'
      expect(await installation.sql(storage.ref, leased, [upload.split('/').at(-1)])).toHaveLength(1)
    }, WAIT)
    const release = proxy.hold('DELETE ')
    const before = proxy.carried()
    const cancelled = service(`DELETE ${upload}`, { headers: TUS })
    try {
      await vi.waitFor(() => expect(proxy.carried()).toBeGreaterThan(before), WAIT)
      running.end('9')
      const [{ statusCode }] = (await answer) as [IncomingMessage]
      expect(statusCode).toBe(409)
    } finally {
      release()
    }
    expect((await cancelled).status).toBe(204)
    expect((await service(`HEAD ${upload}`, { headers: TUS })).status).toBe(404)
    expect((await rows()).map(({ name }) => name)).not.toContain('cancelled')
  })

  it('needs the bucket only if it has parts', async () => {
    const [without, withParts] = [await begin('few', 8, 4), await begin('many', PART + 9, PART)]
    await proxy.close()
    try {
      expect((await service(`DELETE ${without}`, { headers: TUS })).status).toBe(204)
      expect((await service(`DELETE ${withParts}`, { headers: TUS })).status).toBe(503)
    } finally {
      await proxy.open()
    }
    expect((await service(`HEAD ${without}`, { headers: TUS })).status).toBe(404)
    expect((await service(`DELETE ${withParts}`, { headers: TUS })).status).toBe(204)
  })
})

describe('while requests cannot be counted', () => {
  const ask = async () => {
    for (let n = 0; n < 3; n++) await done('GET /bucket')
  }
  const total = async () => {
    const counts = await installation.control.select().from(requestCounts)
    return counts.reduce((sum, { requests }) => sum + requests, 0)
  }

  it('they are answered anyway, and later ones are counted', async () => {
    const { control } = installation
    // A sequence keeps its value after the statement that fails.
    await control.execute(sql`create sequence tries`)
    await control.execute(sql`create function refuse() returns trigger language plpgsql as
      $$ begin perform nextval('tries'); raise exception 'no room'; end $$`)
    await control.execute(sql`create trigger refuse before insert on request_counts execute function refuse()`)
    await ask()
    await vi.waitFor(async () => {
      const { rows } = await control.execute(sql`select is_called from tries`)
      expect(rows).toEqual([{ is_called: true }])
    }, WAIT)
    const before = await total()
    await control.execute(sql`drop trigger refuse on request_counts`)
    await ask()
    await vi.waitFor(async () => expect(await total()).toBe(before + 3), WAIT)
  })
})

describe('while sessions with the control database end', () => {
  /** Ends each session that waits for the lock, until a request that needed one is answered. */
  async function endedDuring(path: string) {
    const { control } = installation
    const headers = { authorization: `Bearer ${storage.keys.service}` }
    return control.transaction(async (tx) => {
      await tx.execute(sql`lock table signing_keys in access exclusive mode`)
      // A Worker remembers a project for a moment.
      for (;;) {
        const answer = fetch(storage.url.replace('/storage/v1', path), { headers })
        let isAnswered = false
        void answer.finally(() => {
          isAnswered = true
        })
        while (!isAnswered) {
          await control.execute(sql`select pg_terminate_backend(pid) from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()`)
        }
        const reply = await answer
        const { status, headers: fields } = reply
        if (status !== 200) return { status, retryAfter: fields.get('retry-after'), body: await reply.json() }
      }
    })
  }

  it('a request to storage is answered 503, so that clients repeat it', async () => {
    expect(await endedDuring('/storage/v1/bucket')).toMatchObject({ status: 503, retryAfter: '1' })
  })

  it('a request to the Data API is answered 503, so that clients repeat it', async () => {
    const message = 'The control plane is busy: try again shortly'
    const body = { code: 'PGRST000', message, details: null, hint: null }
    expect(await endedDuring('/rest/v1/')).toEqual({ status: 503, retryAfter: '1', body })
  })
})

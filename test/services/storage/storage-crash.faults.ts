import { execFile } from 'node:child_process'
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runFolder } from '../../../host/run-folder.ts'
import { adminClient } from '../../instances.ts'
import { as } from '../../support/api.ts'
import { type Machine, newMachine } from '../../support/machine.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, codeOf } from '../../support/storage-http.ts'
import { until } from '../../support/wire/installation.ts'
import { type Killable, startKillable } from '../../support/wire/killable.ts'

/** For larger ones, run it by hand: `STORAGE_BYTES=5000000000 STORAGE_RSS_MB=…`. */
const LARGE_BYTES = Number(process.env.STORAGE_BYTES ?? 100e6)
const MIB = 1024 ** 2

let machine: Machine
let running: Killable
let storage: TestStorage
let key: string
let service: ReturnType<typeof calling>
let bucket: string
beforeAll(async () => {
  machine = await newMachine()
  running = await startKillable(machine)
  await running.ready()
  const { base_url, access_token, organization_slug: slug } = machine.credentials()
  const owner = as(access_token, {}, base_url)
  storage = await newStorage({ owner, slug }, base_url)
  key = storage.keys.service
  service = calling(storage, key)
  const fileSizeLimit = Math.max(LARGE_BYTES, 100e6)
  expect((await owner.patch(`/v1/projects/${storage.ref}/config/storage`, { fileSizeLimit })).status).toBe(200)
  bucket = await newBucket(storage)
})
afterAll(async () => {
  await running?.kill()
  await machine.dispose()
})

async function sql(query: string): Promise<Record<string, string>[]> {
  const { HOST_KEY: key } = JSON.parse(readFileSync(join(machine.folder, 'secrets.json'), 'utf8'))
  const run = await runFolder(join(machine.folder, 'host'))
  const client = await adminClient(storage.ref, { at: { url: `http://127.0.0.1:${machine.env.PROXY_PORT}`, key, run } })
  try {
    return (await client.query(query)).rows
  } finally {
    await client.end()
  }
}

function openBytes() {
  const secrets: Record<string, string> = JSON.parse(readFileSync(join(machine.folder, 'secrets.json'), 'utf8'))
  return new S3Client({
    endpoint: `http://127.0.0.1:${machine.env.S3_PORT}/cdn-cgi/local/r2/s3`,
    region: 'auto',
    credentials: { accessKeyId: secrets.S3_ACCESS_KEY_ID ?? '', secretAccessKey: secrets.S3_SECRET_ACCESS_KEY ?? '' },
    forcePathStyle: true,
  })
}

/** Returns the bytes without a row, and the rows without bytes. */
async function findUnmatched() {
  const prefix = `projects/${storage.ref}/storage/`
  const { Contents = [] } = await openBytes().send(new ListObjectsV2Command({ Bucket: 'pilothouse', Prefix: prefix }))
  const stored = new Set(Contents.map(({ Key = '' }) => Key.slice(prefix.length)))
  const pointed = (await sql('select version from storage.objects')).map(({ version = '' }) => version)
  const waiting = (await sql('select version from pgbouncer.removed_versions')).map(({ version = '' }) => version)
  return {
    strays: [...stored].filter((version) => ![...pointed, ...waiting].includes(version)),
    missing: pointed.filter((version) => !stored.has(version)),
  }
}

/**
 * Returns the number of files on the bucket's disk, also parts of an unfinished upload, which no list of objects
 * shows.
 */
async function filesOfBytes(): Promise<number> {
  const files = await readdir(join(machine.folder, 's3'), { recursive: true })
  return files.filter((file) => /blobs.[^/\\]+$/.test(file)).length
}

interface Runtime {
  pid: number
  rssMib: number
}

/** Returns the two runtimes of `npm start`: the bucket's, which starts first, and the Worker's, which is the largest. */
async function runtimes(): Promise<{ bucket: Runtime; worker: Runtime }> {
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'pid=,ppid=,rss=,args='])
  const all = stdout
    .split('\n')
    .filter((line) => line.includes('workerd serve'))
    .flatMap((line) => {
      const [pid = 0, parent, rss = 0] = line.trim().split(/\s+/).map(Number)
      return parent === running.pid ? [{ pid, rssMib: rss / 1024 }] : []
    })
  const [bucket, ...others] = all.toSorted((one, other) => one.pid - other.pid)
  const [worker] = others.toSorted((one, other) => other.rssMib - one.rssMib)
  if (!bucket || !worker) throw new Error(`they are not among:\n${stdout}`)
  return { bucket, worker }
}

const read = (name: string) => service(`GET /object/authenticated/${bucket}/${name}`)

describe('a client that disconnects', () => {
  const form = '--x\r\ncontent-disposition: form-data; name=""; filename="a"\r\ncontent-type: text/plain\r\n\r\n'
  it.each<[string, Record<string, string>, string]>([
    ['in the middle of its bytes', { 'content-length': String(30 * MIB) }, ''],
    ['in the middle of a few', { 'content-length': '20000' }, ''],
    ['in the middle of chunks', { 'transfer-encoding': 'chunked' }, ''],
    [
      'in the middle of a form',
      { 'content-type': 'multipart/form-data; boundary=x', 'transfer-encoding': 'chunked' },
      form,
    ],
  ])('%s leaves the old object and nothing else', async (_, headers, head) => {
    const name = randomUUID()
    expect(codeOf(await service(`POST /object/${bucket}/${name}`, { body: 'old' }))).toBe(200)
    const [before, files] = [await findUnmatched(), await filesOfBytes()]
    const sent = request(`${storage.url}/object/${bucket}/${name}`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}`, ...headers },
    })
    sent.on('error', () => {})
    sent.write(head)
    const piece = headers['content-length'] === '20000' ? 10_000 : MIB
    const count = piece === MIB ? 14 : 1
    for (let n = 0; n < count; n++) if (!sent.write(randomBytes(piece))) await once(sent, 'drain')
    const closed = new Promise((resolve) => sent.on('close', resolve))
    sent.destroy()
    await closed
    // The answer to a later request on the same connection shows that the server has finished with the first.
    expect(codeOf(await service(`POST /object/${bucket}/${randomUUID()}`, { body: 'next' }))).toBe(200)
    // The local bucket itself leaves a file if a request was cut off.
    const isInParts = !headers['content-length']
    if (isInParts) await expect.poll(filesOfBytes).toBe(files + 1)
    expect(await findUnmatched()).toEqual(before)
    expect((await read(name)).body).toBe('old')
  })
})

describe('when the bucket stops answering', () => {
  it('uploads and reads fail in time, and the old object stays', async () => {
    const name = randomUUID()
    await service(`POST /object/${bucket}/${name}`, { body: 'x'.repeat(200_000) })
    const { pid } = (await runtimes()).bucket
    process.kill(pid, 'SIGSTOP')
    try {
      const replies = await Promise.all([
        read(name),
        service(`PUT /object/${bucket}/${name}`, { body: 'small' }),
        service(`PUT /object/${bucket}/${name}`, { body: 'y'.repeat(3 * MIB) }),
        service('POST /object/copy', { body: { bucketId: bucket, sourceKey: name, destinationKey: randomUUID() } }),
      ])
      expect(replies.map(codeOf)).toEqual(replies.map(() => 'BytesUnavailable'))
      expect(codeOf(await service(`GET /object/info/${bucket}/${name}`))).toBe(200)
    } finally {
      process.kill(pid, 'SIGCONT')
    }
    expect((await read(name)).body).toBe('x'.repeat(200_000))
    expect((await findUnmatched()).missing).toEqual([])
  })
})

describe('when the database is unreachable', () => {
  it('uploads and reads fail, and the old object stays', async () => {
    const name = randomUUID()
    await service(`POST /object/${bucket}/${name}`, { body: 'old' })
    const away = `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'supabase_storage_admin'`
    const sent = request(`${storage.url}/object/${bucket}/${name}`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}`, 'transfer-encoding': 'chunked' },
    })
    sent.write('new')
    await until('the upload has been allowed', 10_000, async () =>
      (await sql(`select 1 from pg_stat_activity where usename = 'supabase_storage_admin'`)).length > 0
        ? true
        : undefined,
    )
    await sql(`alter role supabase_storage_admin connection limit 0; ${away}`)
    try {
      sent.end()
      const [response] = await once(sent, 'response')
      expect([429, 503]).toContain(response.statusCode)
      const codes = (await Promise.all([read(name), service(`DELETE /object/${bucket}/${name}`)])).map(codeOf)
      for (const code of codes) expect(['SlowDown', 'ProjectUnavailable']).toContain(code)
    } finally {
      await sql(`alter role supabase_storage_admin connection limit -1`)
    }
    expect((await read(name)).body).toBe('old')
  })
})

describe('a large object', () => {
  it.each([
    ['of known length', { 'content-length': String(LARGE_BYTES) }],
    ['in chunks', { 'transfer-encoding': 'chunked' }],
  ])(
    '%s is stored and read unchanged, in bounded memory',
    async (_, headers) => {
      // The memory at the start counts, because the runtime keeps what it once used.
      const start = (await runtimes()).worker.rssMib
      let most = start
      let over = false
      const watching = (async () => {
        while (!over) most = Math.max(most, (await runtimes()).worker.rssMib)
      })()
      const [sent, received] = [createHash('sha256'), createHash('sha256')]
      const block = randomBytes(MIB)
      let left = LARGE_BYTES
      const generated = Readable.from(
        (function* () {
          for (let n = 0; left > 0; n++) {
            block.writeUInt32LE(n)
            const piece = Buffer.from(block.subarray(0, Math.min(left, MIB)))
            left -= piece.length
            sent.update(piece)
            yield piece
          }
        })(),
      )
      const startedAt = Date.now()
      const uploading = request(`${storage.url}/object/${bucket}/large`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${key}`, ...headers },
      })
      generated.pipe(uploading)
      const [uploaded] = await once(uploading, 'response')
      expect(uploaded.statusCode).toBe(200)
      uploaded.resume()
      const uploadedAt = Date.now()
      const response = await fetch(`${storage.url}/object/authenticated/${bucket}/large`, {
        headers: { authorization: `Bearer ${key}` },
      })
      let bytes = 0
      for await (const piece of response.body ?? []) {
        bytes += piece.length
        received.update(piece)
      }
      over = true
      await watching
      expect([bytes, received.digest('hex')]).toEqual([LARGE_BYTES, sent.digest('hex')])
      if (process.env.STORAGE_BYTES) {
        console.log({ seconds: [uploadedAt - startedAt, Date.now() - uploadedAt].map((ms) => ms / 1000), start, most })
      }
      expect(most - start).toBeLessThan(150)
    },
    900_000,
  )
})

describe('when all processes die at once', () => {
  it('each key has the old or the new object, complete', async () => {
    const names = Array.from({ length: 6 }, (_, n) => `key-${n}`)
    /** The possible objects at each key: the last acknowledged one, and the one under way. */
    const possible = new Map<string, (string | undefined)[]>(names.map((name) => [name, [undefined]]))
    for (let death = 0; death < 2; death++) {
      let isDead = false
      let answered = 0
      const writers = names.map(async (name, n) => {
        for (let turn = 0; !isDead; turn++) {
          const body = turn % 5 === 4 ? undefined : `${randomUUID()} `.repeat(1 + 3_000 * (n % 3))
          possible.get(name)?.push(body)
          const request = body === undefined ? 'DELETE' : 'PUT'
          const reply = await service(`${request} /object/${bucket}/${name}`, body === undefined ? {} : { body })
          expect([200, 'NoSuchKey']).toContain(codeOf(reply))
          possible.set(name, [body])
          answered += 1
        }
      })
      const ended = Promise.allSettled(writers)
      await until('some are answered', 30_000, () => (answered > 10 + 20 * Math.random() ? true : undefined))
      isDead = true
      await running.kill()
      await ended
      running = await startKillable(machine)
      await running.ready()
      for (const name of names) {
        const reply = await read(name)
        const found = reply.status === 200 ? reply.body : codeOf(reply) === 'NoSuchKey' ? undefined : reply
        expect(possible.get(name)).toContain(found)
        possible.set(name, [found])
      }
      expect((await findUnmatched()).missing).toEqual([])
    }
  })
})

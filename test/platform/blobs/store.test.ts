import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { extended } from '../../support/extended.ts'
import { startBucket } from './bucket.ts'
import { startBlobsWorker } from './harness.ts'

const MIB = 1024 ** 2
const PART_BYTES = 5 * MIB

let bucket: Awaited<ReturnType<typeof startBucket>>
let worker: Awaited<ReturnType<typeof startBlobsWorker>>
beforeAll(async () => {
  bucket = await startBucket()
  worker = await startBlobsWorker(bucket.endpoint)
})
afterAll(async () => {
  await worker.stop()
  await bucket.stop()
})
beforeEach(() => {
  bucket.seen()
})

type Values = Record<string, string | number>

async function call(operation: string, values: Values, body?: BodyInit) {
  const response = await fetch(worker.url(operation, values), { method: 'POST', body, duplex: 'half' } as RequestInit)
  return { status: response.status, body: JSON.parse(await response.text()) }
}

async function bytesOf(key: string, range: Values = {}) {
  const response = await fetch(worker.url('get', { key, ...range }))
  return {
    status: response.status,
    size: response.headers.get('x-size'),
    bytes: Buffer.from(await response.arrayBuffer()),
  }
}

const piecesOf = (key: string, values: Values) => fetch(worker.url('pieces', { key, ...values }))

const newKey = () => `test/${randomUUID()}`
const md5 = (bytes: Uint8Array) => `"${createHash('md5').update(bytes).digest('hex')}"`

/** A body without a length, in chunks that match none of our sizes. */
const streamOf = (bytes: Uint8Array, pieceBytes = 70_001) =>
  new ReadableStream({
    start(controller) {
      for (let from = 0; from < bytes.length; from += pieceBytes)
        controller.enqueue(bytes.subarray(from, from + pieceBytes))
      controller.close()
    },
  })

describe('a body of known length', () => {
  for (const size of [0, 1, 100_000, PART_BYTES + 1]) {
    it(`of ${size} bytes is stored in one request`, async () => {
      const key = newKey()
      const bytes = randomBytes(size)
      expect(await call('put', { key, size }, bytes)).toEqual({ status: 200, body: { etag: md5(bytes), size } })
      expect(bucket.seen()).toEqual(['PUT '])
      const found = await bytesOf(key)
      expect(found.size).toBe(String(size))
      expect(found.bytes.equals(bytes)).toBe(true)
    })
  }

  it.each([
    ['shorter', 99],
    ['longer', 101],
  ])('is refused when it is %s', async (_, length) => {
    const key = newKey()
    const inMemory = await call('putBytes', { key, size: 100 }, randomBytes(length))
    expect(inMemory.body.name).toBe('BlobIncomplete')
    const small = await call('put', { key, size: 100 }, streamOf(randomBytes(length)))
    expect(small.body.name).toBe('BlobIncomplete')
    const { body } = await call('put', { key, size: MIB }, streamOf(randomBytes(MIB - 100 + length)))
    expect(body.name).toBe('BlobInterrupted')
    expect((await bytesOf(key)).status).toBe(404)
  })

  it('leaves nothing if the caller leaves in the middle', async () => {
    const key = newKey()
    const upload = request(worker.url('put', { key }), { method: 'POST', headers: { 'content-length': 2 * MIB } })
    upload.on('error', () => {})
    upload.write(randomBytes(MIB))
    await expect.poll(() => bucket.seen()).toEqual(['PUT '])
    upload.destroy()
    await expect.poll(() => bucket.seen()).toEqual(['cut off'])
    expect((await bytesOf(key)).status).toBe(404)
  })

  it('is aborted if the caller goes silent in the middle', async () => {
    const key = newKey()
    const upload = request(worker.url('putSoon', { key }), { method: 'POST', headers: { 'content-length': 2 * MIB } })
    upload.write(randomBytes(MIB))
    await expect.poll(() => bucket.seen()).toEqual(['PUT '])
    const [reply] = await once(upload, 'response')
    expect(await json(reply)).toMatchObject({ name: 'BodyStalled' })
    upload.destroy()
    await expect.poll(() => bucket.seen()).toEqual(['cut off'])
    expect((await bytesOf(key)).status).toBe(404)
  })

  it('is interrupted if the bucket waited too long for it', async () => {
    bucket.refuse(1, { status: 400, code: 'RequestTimeout' })
    const { body } = await call('put', { key: newKey(), size: MIB }, randomBytes(MIB))
    expect(body.name).toBe('BlobInterrupted')
  })

  it('is sent again if it is in memory and the bucket was busy', async () => {
    const key = newKey()
    bucket.refuse(2)
    expect((await call('putBytes', { key, size: 3 }, 'abc')).status).toBe(200)
    expect(bucket.seen()).toEqual(['PUT ', 'PUT ', 'PUT '])
  })

  it("fails with the bucket's answer if it is a stream", async () => {
    bucket.refuse(1)
    const { body } = await call('put', { key: newKey(), size: MIB }, randomBytes(MIB))
    expect(body).toMatchObject({ name: 'BucketError', message: 'the bucket answered 503 SlowDown' })
    expect(bucket.seen()).toEqual(['PUT '])
  })
})

describe('a body of unknown length', () => {
  extended('waits for memory if many come at once, and frees it after an interruption too', async () => {
    const bytes = randomBytes(PART_BYTES + 1)
    for (let n = 0; n < 15; n++) {
      const cut = request(worker.url('putUnknown', { key: newKey(), sizeMax: 50 * MIB }), { method: 'POST' })
      cut.on('error', () => {})
      cut.write(bytes.subarray(0, MIB), () => cut.destroy())
    }
    const replies = await Promise.all(
      Array.from({ length: 30 }, () => call('putUnknown', { key: newKey(), sizeMax: 50 * MIB }, streamOf(bytes))),
    )
    expect(replies.map(({ body }) => body.size)).toEqual(Array(30).fill(bytes.length))
  })

  it('is aborted if it is slow while others wait for its memory', async () => {
    const slow = Array.from({ length: 20 }, () => {
      const upload = request(worker.url('putUnknown', { key: newKey(), sizeMax: 50 * MIB }), { method: 'POST' })
      upload.on('error', () => {})
      upload.write(randomBytes(MIB))
      return upload
    })
    const answered = slow.map(async (upload) => json((await once(upload, 'response'))[0]))
    const given = { name: 'BodyStalled', message: expect.stringContaining('others wait') }
    // Only some of them are aborted: those that hold no memory wait as well.
    await Promise.any(answered.map(async (answer) => expect(await answer).toMatchObject(given)))
    const bytes = randomBytes(PART_BYTES + 1)
    const { body } = await call('putUnknown', { key: newKey(), sizeMax: 50 * MIB }, streamOf(bytes))
    expect(body.size).toBe(bytes.length)
    for (const upload of slow) upload.destroy()
  })

  const begin = (owner: string) => {
    const key = `projects/${owner}/${randomUUID()}`
    const upload = request(worker.url('putUnknown', { key, sizeMax: 50 * MIB }), { method: 'POST' })
    upload.on('error', () => {})
    upload.write(randomBytes(MIB))
    return { upload, answer: once(upload, 'response').then(([reply]) => json(reply)) }
  }

  it('finds memory if two owners want all of it', async () => {
    const greedy = ['one', 'two'].flatMap((owner) => Array.from({ length: 10 }, () => begin(owner)))
    const waiting = Promise.any(greedy.map(({ answer }) => answer))
    // A first upload of each owner has its memory.
    const third = begin('three')
    third.upload.end('the rest')
    expect(await Promise.race([third.answer, waiting])).toMatchObject({ size: MIB + 'the rest'.length })
    for (const { upload } of greedy) upload.destroy()
  })

  it('keeps its memory from owners that already have their share', async () => {
    const patient = begin('one')
    // More uploads than one owner may have, and fewer than fit in all.
    const greedy = Array.from({ length: 8 }, () => begin('other'))
    await Promise.any(greedy.map(async ({ answer }) => expect(await answer).toMatchObject({ name: 'BodyStalled' })))
    patient.upload.end('the rest')
    expect(await patient.answer).toMatchObject({ size: MIB + 'the rest'.length })
    for (const { upload } of greedy) upload.destroy()
  })

  const ONE = ['PUT ']
  const TWO = ['POST uploads', 'PUT uploadId partNumber', 'PUT uploadId partNumber', 'POST uploadId']
  it.each([
    [0, ONE],
    [1, ONE],
    [PART_BYTES - 1, ONE],
    [PART_BYTES, ONE],
    [PART_BYTES + 1, TWO],
    [2 * PART_BYTES, TWO],
  ])('of %d bytes is stored by %j', async (size, requests) => {
    const key = newKey()
    const bytes = randomBytes(size)
    const { body } = await call('putUnknown', { key, sizeMax: 50 * MIB }, streamOf(bytes))
    expect(body).toEqual({ etag: expect.stringMatching(/^"[0-9a-f]{32}(-2)?"$/), size })
    expect(bucket.seen()).toEqual(requests)
    expect((await bytesOf(key)).bytes.equals(bytes)).toBe(true)
  })

  it('has parts long enough for ten thousand of them to hold it', async () => {
    const bytes = randomBytes(13 * MIB)
    const key = newKey()
    expect((await call('putUnknown', { key, sizeMax: 60_000 * MIB }, streamOf(bytes))).status).toBe(200)
    expect(bucket.seen()).toEqual(['POST uploads', ...Array(3).fill('PUT uploadId partNumber'), 'POST uploadId'])
    expect((await bytesOf(key)).bytes.equals(bytes)).toBe(true)
  })

  it.each([
    [0, 1, []],
    [1000, 1001, []],
    [PART_BYTES, PART_BYTES + 1, []],
    [
      PART_BYTES + 1,
      PART_BYTES + 2,
      ['POST uploads', 'PUT uploadId partNumber', 'PUT uploadId partNumber', 'DELETE uploadId'],
    ],
  ])('is stored with %d bytes if that is the limit, and refused with %d', async (sizeMax, size, requests) => {
    const key = newKey()
    expect((await call('putUnknown', { key, sizeMax }, streamOf(randomBytes(sizeMax)))).body.size).toBe(sizeMax)
    bucket.seen()
    const other = newKey()
    const { body } = await call('putUnknown', { key: other, sizeMax }, streamOf(randomBytes(size)))
    expect(body.name).toBe('BlobTooLarge')
    expect(bucket.seen()).toEqual(requests)
    expect((await bytesOf(other)).status).toBe(404)
  })

  it('is refused during the upload', async () => {
    const key = newKey()
    const upload = request(worker.url('putUnknown', { key, sizeMax: 1000 }), { method: 'POST' })
    upload.on('error', () => {})
    upload.write(randomBytes(200_000))
    const [response] = await once(upload, 'response')
    expect(response.statusCode).toBe(500)
    upload.destroy()
  })

  it('leaves no part if the caller leaves in the middle', async () => {
    const upload = request(worker.url('putUnknown', { key: newKey(), sizeMax: 50 * MIB }), { method: 'POST' })
    upload.on('error', () => {})
    upload.write(randomBytes(PART_BYTES + MIB))
    const requests: string[] = []
    await expect.poll(() => requests.push(...bucket.seen()) && requests).toContain('PUT uploadId partNumber')
    upload.destroy()
    await expect.poll(() => requests.push(...bucket.seen()) && requests).toContain('DELETE uploadId')
  })
})

describe('a read of bytes', () => {
  it('returns a range if one is requested', async () => {
    const key = newKey()
    await call('put', { key, size: 10 }, '0123456789')
    for (const [offset, length, text] of [
      [0, 1, '0'],
      [3, 4, '3456'],
      [9, 1, '9'],
      [0, 10, '0123456789'],
    ] as const) {
      const found = await bytesOf(key, { offset, length })
      expect([found.bytes.toString(), found.size]).toEqual([text, String(length)])
    }
  })

  it('is repeated if the bucket was busy', async () => {
    const key = newKey()
    await call('put', { key, size: 3 }, 'abc')
    bucket.refuse(2)
    expect((await bytesOf(key)).bytes.toString()).toBe('abc')
    bucket.refuse(3)
    expect((await bytesOf(key)).status).toBe(500)
  })

  it('comes in pieces if it is long, each requested when the one before it is taken', async () => {
    const key = newKey()
    const bytes = randomBytes(10)
    await call('put', { key, size: 10 }, bytes)
    bucket.seen()
    const found = await piecesOf(key, { offset: 1, length: 8, pieceBytes: 3 })
    expect(found.headers.get('x-size')).toBe('10')
    expect(Buffer.from(await found.arrayBuffer())).toEqual(bytes.subarray(1, 9))
    expect(bucket.seen()).toEqual(['GET bytes=1-3', 'GET bytes=4-6', 'GET bytes=7-8'])
  })

  it('stops where its reader stops', async () => {
    const key = newKey()
    const [size, pieceBytes] = [20 * MIB, 4 * MIB]
    await call('put', { key, size }, randomBytes(size))
    bucket.seen()
    expect((await call('beginPieces', { key, size, pieceBytes })).body).toEqual({ others: size })
    const pieces = bucket.seen().filter((request) => request !== 'GET ')
    expect(pieces[0]).toBe('GET bytes=0-4194303')
    expect(pieces.length).toBeLessThanOrEqual(2)
  })

  extended('continues if the bucket was busy in the middle, and fails if the bytes were removed', async () => {
    const key = newKey()
    const [size, pieceBytes] = [40 * MIB, 4 * MIB]
    const bytes = randomBytes(size)
    await call('put', { key, size }, bytes)
    const busy = await piecesOf(key, { offset: 0, length: size, pieceBytes })
    bucket.refuse(2)
    expect(bytes.equals(Buffer.from(await busy.arrayBuffer()))).toBe(true)
    const removed = await piecesOf(key, { offset: 0, length: size, pieceBytes })
    await call('remove', {}, JSON.stringify([key]))
    await expect(removed.arrayBuffer()).rejects.toThrow()
  })

  it('finds every name that a key may have', async () => {
    for (const name of ['a b', "it's (1)!*", 'ünï%20', 'a+b&c=d?e#f', '~a:@,;$']) {
      const key = `${newKey()}/${name}`
      expect((await call('put', { key, size: 3 }, 'abc')).status).toBe(200)
      expect((await bytesOf(key)).bytes.toString(), name).toBe('abc')
      const { body } = await call('list', { prefix: key, count: 2 })
      expect(body.blobs.map((blob: { key: string }) => blob.key)).toEqual([key])
    }
  })
})

describe('a bucket that refuses connections', () => {
  extended('is named as the cause, unless the body itself may have been interrupted', async () => {
    const door = createServer().listen(0, '127.0.0.1')
    await once(door, 'listening')
    const { port } = door.address() as AddressInfo
    await new Promise((closed) => door.close(closed))
    const cut = await startBlobsWorker(`http://127.0.0.1:${port}`)
    const nameOf = async (operation: string, values: Values, body?: BodyInit) => {
      const url = cut.url(operation, { key: newKey(), ...values })
      const reply = await fetch(url, { method: 'POST', body, duplex: 'half' } as RequestInit)
      return JSON.parse(await reply.text()).name
    }
    try {
      expect(await nameOf('putBytes', { size: 3 }, 'abc')).toBe('BucketUnreachable')
      expect(await nameOf('get', {})).toBe('BucketUnreachable')
      expect(await nameOf('copy', { from: 'a', to: 'b', size: 3 })).toBe('BucketUnreachable')
      expect(await nameOf('list', { prefix: 'a', count: 3 })).toBe('BucketUnreachable')
      const parts = streamOf(randomBytes(PART_BYTES + 1))
      expect(await nameOf('putUnknown', { sizeMax: 50 * MIB }, parts)).toBe('BucketUnreachable')
      expect(await nameOf('put', { size: MIB }, randomBytes(MIB))).toBe('BlobInterrupted')
    } finally {
      await cut.stop()
    }
  })
})

describe('a copy', () => {
  it('has the bytes of its source', async () => {
    const [from, to] = [newKey(), newKey()]
    await call('put', { key: from, size: 3 }, 'abc')
    const { body } = await call('copy', { from, to, size: 3 })
    expect(body).toEqual({ etag: md5(Buffer.from('abc')), size: 3 })
    expect((await bytesOf(to)).bytes.toString()).toBe('abc')
  })

  it('is made in parts if it is too long for one request', async () => {
    const [from, to] = [newKey(), newKey()]
    const bytes = randomBytes(2 * PART_BYTES + 7)
    await call('put', { key: from, size: bytes.length }, bytes)
    const { body } = await call('copyParts', { from, to, size: bytes.length, partSize: PART_BYTES })
    expect(body.etag).toMatch(/-3"$/)
    expect((await bytesOf(to)).bytes.equals(bytes)).toBe(true)
  })

  it('of a missing key returns nothing', async () => {
    expect((await call('copy', { from: newKey(), to: newKey(), size: 3 })).body).toBeNull()
  })
})

describe('removal and listing', () => {
  const list = async (prefix: string, values: Values) => (await call('list', { prefix, ...values })).body

  it('pages through keys in order', async () => {
    const prefix = `${newKey()}/`
    for (const name of ['b', 'a', 'c', 'B']) await call('put', { key: prefix + name, size: 1 }, 'x')
    const first = await list(prefix, { count: 3 })
    expect(first).toEqual({
      more: true,
      blobs: ['B', 'a', 'b'].map((name) => ({ key: prefix + name, size: 1, modifiedAt: expect.any(String) })),
    })
    expect(Math.abs(Date.now() - Date.parse(first.blobs[0].modifiedAt))).toBeLessThan(60_000)
    const rest = await list(prefix, { count: 3, after: `${prefix}b` })
    expect(rest).toMatchObject({ more: false, blobs: [{ key: `${prefix}c` }] })
    expect(await list(newKey(), { count: 3 })).toEqual({ more: false, blobs: [] })
  })

  it('removes 2,500 keys in requests of a thousand, missing ones too', async () => {
    const prefix = `${newKey()}/`
    const kept = `${prefix}kept`
    const there = [0, 999, 1000, 2499].map((n) => `${prefix}${n}`)
    for (const key of [kept, ...there]) await call('put', { key, size: 1 }, 'x')
    bucket.seen()
    const keys = Array.from({ length: 2500 }, (_, n) => `${prefix}${n}`)
    expect((await call('remove', {}, JSON.stringify(keys))).status).toBe(200)
    expect(bucket.seen()).toEqual(Array(3).fill('POST delete'))
    expect((await list(prefix, { count: 10 })).blobs).toMatchObject([{ key: kept }])
  })

  it('reports which keys could not be removed, and removes the others', async () => {
    const prefix = `${newKey()}/`
    const keys = Array.from({ length: 1001 }, (_, n) => `${prefix}${n}`)
    for (const key of [keys[0], keys[1000]]) await call('put', { key: String(key), size: 1 }, 'x')
    // The client tries this many times.
    bucket.refuse(3)
    const { body } = await call('remove', {}, JSON.stringify(keys))
    expect(body).toMatchObject({ name: 'BlobsNotRemoved', keys: keys.slice(0, 1000) })
    expect((await list(prefix, { count: 10 })).blobs).toMatchObject([{ key: keys[0] }])
  })
})

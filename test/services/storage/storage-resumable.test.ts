import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { scheduler } from 'node:timers/promises'
import { CompleteMultipartUploadCommand, S3Client, UploadPartCommand } from '@aws-sdk/client-s3'
import { Hono } from 'hono'
import * as tus from 'tus-js-client'
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { renderTusError } from '../../../src/services/storage/resumable/tus-protocol.ts'
import { StorageError, type StorageErrorCode } from '../../../src/services/storage/storage-error.ts'
import { newBranch } from '../../support/branches.ts'
import { runSql } from '../../support/projects.ts'
import { apiOf, clientOf, exchange, newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { expectNoStrayBytes, openSql, type Sql, signerOf } from '../../support/storage-http.ts'

/** Uploads in several requests, as the most used client of the protocol makes them and as they are on the wire. */
const KIB = 1024
const MIB = 1024 ** 2
const PART = 6 * MIB
const DAY_MS = 24 * 60 * 60 * 1000

let storage: TestStorage
let bucket: string
let sql: Sql
let close: () => Promise<void>
let user: (sub: string) => string

beforeAll(async () => {
  storage = await newStorage()
  bucket = await newBucket(storage)
  ;({ sql, close } = await openSql(storage))
  ;({ user } = await signerOf(storage))
})
afterAll(() => close())

const urlOf = (path = '') => `${storage.url}/upload/resumable${path}`
const base64 = (text: string) => Buffer.from(text).toString('base64')
const metadataOf = (fields: Record<string, string>) =>
  Object.entries(fields)
    .map(([name, value]) => `${name} ${base64(value)}`)
    .join(',')
const newName = () => `folder/${randomUUID()}.bin`

interface Wire {
  headers?: Record<string, string | undefined>
  body?: Uint8Array | undefined
  token?: string | undefined
  at?: Date
}

/** Sends one request of the protocol, with the headers that each has. */
async function ask(method: string, url: string, { headers = {}, body, token = storage.keys.service, at }: Wire = {}) {
  const all = {
    'tus-resumable': '1.0.0',
    ...(token && { authorization: `Bearer ${token}` }),
    ...(at && { 'x-test-clock': String(at.getTime()) }),
    ...headers,
  }
  const sent = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const response = await fetch(url, { method, headers: sent, body: (body ?? null) as BodyInit | null })
  const { status, headers: got } = response
  return { status, text: await response.text(), headers: got, offset: got.get('upload-offset') }
}

interface Creation extends Wire {
  size?: number
  fields?: Record<string, string>
  upsert?: boolean
}

const create = (name: string, { size = PART, fields, upsert, headers, ...wire }: Creation = {}) =>
  ask('POST', urlOf(), {
    ...wire,
    headers: {
      'upload-length': String(size),
      'upload-metadata': metadataOf({ bucketName: bucket, objectName: name, ...fields }),
      ...(upsert && { 'x-upsert': 'true' }),
      ...headers,
    },
  })

async function beginUpload(name: string, creation: Creation = {}): Promise<string> {
  const { status, text, headers } = await create(name, creation)
  expect([status, text]).toEqual([201, ''])
  return headers.get('location') ?? ''
}

const send = (location: string, offset: number, body: Uint8Array | undefined, { headers, ...wire }: Wire = {}) =>
  ask('PATCH', location, {
    ...wire,
    body,
    headers: { 'content-type': 'application/offset+octet-stream', 'upload-offset': String(offset), ...headers },
  })

async function downloaded(name: string): Promise<Buffer> {
  const url = `${storage.url}/object/authenticated/${bucket}/${name}`
  const response = await fetch(url, { headers: { authorization: `Bearer ${storage.keys.service}` } })
  expect(response.status).toBe(200)
  return Buffer.from(await response.arrayBuffer())
}

const infoOf = async (name: string) => (await clientOf(storage, storage.keys.service).from(bucket).info(name)).data

const uploadsOf = (name: string) => sql('select * from pgbouncer.resumable_uploads where name = $1', [name])

type Options = Omit<tus.UploadOptions, 'onSuccess' | 'onError'>

/** Uploads as the documentation of the hosted service shows. */
function upload(file: Buffer | Readable, name: string, options: Options = {}): Promise<string | null> {
  const { headers, metadata, ...more } = options
  return new Promise((resolve, reject) => {
    const each = new tus.Upload(file, {
      endpoint: urlOf(),
      retryDelays: [0, 50, 100],
      headers: { authorization: `Bearer ${storage.keys.service}`, 'x-upsert': 'true', ...headers },
      uploadDataDuringCreation: true,
      removeFingerprintOnSuccess: true,
      metadata: { bucketName: bucket, objectName: name, contentType: 'image/png', cacheControl: '3600', ...metadata },
      chunkSize: PART,
      ...more,
      onError: reject,
      onSuccess: () => resolve(each.url),
    })
    each.start()
  })
}

describe('tus-js-client', () => {
  it('uploads in parts, and the object is like any other', async () => {
    const [name, bytes] = [newName(), randomBytes(2 * PART + 7)]
    await upload(bytes, name, { metadata: { metadata: '{"camera":"none","n":1}' } })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    expect(await infoOf(name)).toMatchObject({
      name,
      size: bytes.length,
      contentType: 'image/png',
      cacheControl: 'max-age=3600',
      metadata: { camera: 'none', n: 1 },
    })
    await expectNoStrayBytes(storage, sql)
  })

  it.each<[string, number, Options]>([
    ['chunks that are smaller than a part', 2 * PART + 5, { chunkSize: 4 * MIB + 1 }],
    ['one chunk', 3 * PART + 5, { chunkSize: Number.POSITIVE_INFINITY }],
    ['exactly the parts', 2 * PART, {}],
    ['less than a part', 5, {}],
    ['no bytes in the first request', PART + 1, { uploadDataDuringCreation: false }],
    ['nothing at all', 0, { uploadDataDuringCreation: false }],
    ['methods in a header', PART + 1, { overridePatchMethod: true }],
  ])('uploads %s', async (_, size, options) => {
    const [name, bytes] = [newName(), randomBytes(size)]
    await upload(bytes, name, options)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    await expectNoStrayBytes(storage, sql)
  })

  it.each([
    ['', PART + 3],
    [', whose end is that of a part', PART],
  ])('uploads a stream whose length is known only at its end%s', async (_, size) => {
    const [name, bytes] = [newName(), randomBytes(size)]
    const file = Readable.from([bytes.subarray(0, 1000), bytes.subarray(1000)])
    await upload(file, name, { uploadLengthDeferred: true, chunkSize: PART, uploadDataDuringCreation: false })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })

  it('replaces an object, and is refused without x-upsert', async () => {
    const [name, bytes] = [newName(), randomBytes(10)]
    await upload(randomBytes(20), name)
    await upload(bytes, name)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    const refused = upload(randomBytes(20), name, { headers: { 'x-upsert': 'false' }, retryDelays: null })
    await expect(refused).rejects.toThrow('response code: 409')
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })

  it.each([
    ['behind a part', PART + MIB],
    ['before one is full', 2 * MIB],
  ])('continues after an interrupted request, %s', async (_, came) => {
    const [name, bytes] = [newName(), randomBytes(3 * PART)]
    const location = await beginUpload(name, { size: bytes.length, upsert: true })
    const interruptAfter = async (from: number) => {
      await interruptRequest(location, bytes.subarray(from, from + came), from)
      let offset = 0
      // A chunk that was being read is lost.
      await expect
        .poll(async () => {
          offset = Number((await ask('HEAD', location)).offset)
          return offset
        })
        .toBeGreaterThan(from + came - 128 * KIB)
      expect(offset).toBeLessThanOrEqual(from + came)
      return offset
    }
    await interruptAfter(await interruptAfter(0))
    const [row] = await uploadsOf(name)
    expect(row?.lease).toBeNull()
    await upload(bytes, name, { uploadUrl: location })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    await expectNoStrayBytes(storage, sql)
  })

  it('uploads with a signature in place of a token, once', async () => {
    const name = newName()
    const { data } = await clientOf(storage, storage.keys.service).from(bucket).createSignedUploadUrl(name)
    const bytes = randomBytes(PART + 9)
    const signed: Options = {
      endpoint: urlOf('/sign'),
      headers: { authorization: '', 'x-upsert': 'false', 'x-signature': data?.token ?? '' },
      retryDelays: null,
    }
    await upload(bytes, name, signed)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    await expect(upload(bytes, name, signed)).rejects.toThrow('response code: 409')
    await clientOf(storage, storage.keys.service).from(bucket).remove([name])
    await expect(upload(bytes, name, signed)).rejects.toThrow('The token was used before')
    await expect(upload(bytes, newName(), signed)).rejects.toThrow('Invalid signature')
  })
})

/** Sends fewer bytes than announced, and disconnects. */
function interruptRequest(location: string, bytes: Uint8Array, offset: number): Promise<void> {
  const { hostname, port, pathname } = new URL(location)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => {
      socket.write(
        [
          `PATCH ${pathname} HTTP/1.1`,
          `host: ${hostname}:${port}`,
          `authorization: Bearer ${storage.keys.service}`,
          'tus-resumable: 1.0.0',
          'content-type: application/offset+octet-stream',
          `upload-offset: ${offset}`,
          `content-length: ${bytes.length + MIB}`,
          '\r\n',
        ].join('\r\n'),
      )
      socket.write(bytes, () => {
        socket.end()
        resolve()
      })
    })
    socket.on('error', reject)
  })
}

describe('the reply of the server', () => {
  it('describes the protocol, to browsers too', async () => {
    const { status, headers } = await ask('OPTIONS', urlOf(), {
      headers: { origin: 'https://app.example.com', 'access-control-request-headers': 'tus-resumable,x-upsert' },
    })
    expect(status).toBe(204)
    expect(Object.fromEntries(headers)).toMatchObject({
      'tus-resumable': '1.0.0',
      'tus-version': '1.0.0',
      'tus-extension': 'creation,creation-with-upload,creation-defer-length,termination,expiration',
      'tus-max-size': String(9_000 * 16 * MIB),
      'access-control-allow-origin': '*',
      'access-control-allow-headers': 'tus-resumable,x-upsert',
      'access-control-allow-methods': expect.stringContaining('PATCH'),
    })
  })

  it('describes an unfinished upload', async () => {
    const [name, at] = [newName(), new Date()]
    const location = await beginUpload(name, { size: 10, at })
    expect(location).toMatch(new RegExp(`^${urlOf()}/[0-9a-f-]{36}$`))
    const sent = await send(location, 0, randomBytes(4), { at })
    expect([sent.status, sent.offset, sent.text]).toEqual([204, '4', ''])
    const { status, headers } = await ask('HEAD', location)
    expect(status).toBe(200)
    expect(Object.fromEntries(headers)).toMatchObject({
      'upload-offset': '4',
      'upload-length': '10',
      'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }),
      'upload-expires': new Date(at.getTime() + DAY_MS).toUTCString(),
      'cache-control': 'no-store',
      'tus-resumable': '1.0.0',
      'access-control-expose-headers': '*',
    })
    expect(await infoOf(name)).toBeNull()
  })

  it('describes an upload whose request may have been interrupted, once its offset is recorded or after a time', async () => {
    const location = await beginUpload(newName(), { size: 10 })
    const id = location.split('/').at(-1)
    await sql('update pgbouncer.resumable_uploads set lease = gen_random_uuid() where id = $1', [id])
    expect((await ask('HEAD', location)).offset).toBe('0')
    const looking = ask('HEAD', location)
    await scheduler.wait(200)
    await sql('update pgbouncer.resumable_uploads set lease = null, received = 5 where id = $1', [id])
    expect((await looking).offset).toBe('5')
  })

  it('describes a finished upload, as often as it is requested', async () => {
    const [name, bytes] = [newName(), randomBytes(10)]
    const location = await beginUpload(name, { size: 10 })
    expect(await send(location, 0, bytes)).toMatchObject({ status: 204, offset: '10' })
    expect(await ask('HEAD', location)).toMatchObject({ status: 200, offset: '10' })
    expect(await send(location, 10, undefined)).toMatchObject({ status: 204, offset: '10' })
    expect(await send(location, 0, bytes)).toMatchObject({ status: 409 })
    expect(await ask('DELETE', location)).toMatchObject({ status: 400 })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })

  it('describes one of unknown length', async () => {
    const [name, bytes] = [newName(), randomBytes(9)]
    const headers = { 'upload-length': undefined, 'upload-defer-length': '1' }
    const { headers: made } = await ask('POST', urlOf(), {
      headers: { 'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }), ...headers },
    })
    const location = made.get('location') ?? ''
    await send(location, 0, bytes)
    const known = await ask('HEAD', location)
    expect([known.offset, known.headers.get('upload-defer-length'), known.headers.get('upload-length')]).toEqual([
      '9',
      '1',
      null,
    ])
    for (const length of ['8', String(51 * MIB)]) {
      const refused = await send(location, 9, undefined, { headers: { 'upload-length': length } })
      expect(refused.status).toBe(length === '8' ? 400 : 413)
    }
    expect(await send(location, 9, undefined, { headers: { 'upload-length': '9' } })).toMatchObject({ status: 204 })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })
})

it('has the headers of the protocol even if the project does not exist', async () => {
  const reply = await ask('HEAD', urlOf(`/${randomUUID()}`).replace(storage.ref, 'a'.repeat(20)))
  expect([reply.status, reply.headers.get('tus-resumable')]).toEqual([404, '1.0.0'])
})

it.each([
  ['api.example.com', 'https://api.example.com'],
  ['127.0.0.1:8787', 'http://127.0.0.1:8787'],
])('the address is the one that a client at %s reached', async (host, origin) => {
  const { status, headers } = await exchange(urlOf(), {
    method: 'POST',
    headers: {
      host,
      authorization: `Bearer ${storage.keys.service}`,
      'tus-resumable': '1.0.0',
      'upload-length': '10',
      'upload-metadata': metadataOf({ bucketName: bucket, objectName: newName() }),
    },
  })
  expect([status, headers.location]).toEqual([
    201,
    expect.stringContaining(`${origin}/p/${storage.ref}/storage/v1/upload/`),
  ])
})

it('an upload in use is locked, so that the client retries; other errors would make it give up or start again', async () => {
  const app = new Hono().get('/:code', (c) =>
    renderTusError(c, new StorageError(c.req.param('code') as StorageErrorCode)),
  )
  const statusOf = async (method: string, code: StorageErrorCode) => (await app.request(`/${code}`, { method })).status
  expect(await statusOf('GET', 'SlowDown')).toBe(423)
  expect(await statusOf('GET', 'RequestAborted')).toBe(423)
  expect(await statusOf('GET', 'DatabaseTimeout')).toBe(544)
  expect(await statusOf('HEAD', 'DatabaseTimeout')).toBe(423)
  expect(await statusOf('HEAD', 'NoSuchUpload')).toBe(404)
})

describe('an invalid request', () => {
  const place = () => ({ bucketName: bucket, objectName: newName() })

  it.each<[string, number, string, () => Wire]>([
    ['without the version', 412, 'Tus-Resumable', () => ({ headers: { 'tus-resumable': undefined } })],
    ['of another version', 412, 'Tus-Resumable', () => ({ headers: { 'tus-resumable': '0.2.2' } })],
    ['without a length', 400, 'Upload-Length', () => ({ headers: { 'upload-length': undefined } })],
    ['with a length and none', 400, 'Upload-Length', () => ({ headers: { 'upload-defer-length': '1' } })],
    ['with a wrong length', 400, 'Upload-Length', () => ({ headers: { 'upload-length': '-1' } })],
    [
      'with one that no number holds',
      400,
      'Upload-Length',
      () => ({ headers: { 'upload-length': '9999999999999999' } }),
    ],
    ['with a wrong deferral', 400, 'Upload-Defer-Length', () => ({ headers: { 'upload-defer-length': '2' } })],
    ['without metadata', 400, 'Upload-Metadata', () => ({ headers: { 'upload-metadata': undefined } })],
    ['with metadata in no base64', 400, 'Upload-Metadata', () => ({ headers: { 'upload-metadata': 'bucketName %' } })],
    [
      'without a bucket',
      400,
      'bucketName',
      () => ({ headers: { 'upload-metadata': metadataOf({ objectName: 'a' }) } }),
    ],
    ['without a name', 400, 'objectName', () => ({ headers: { 'upload-metadata': metadataOf({ bucketName: 'a' }) } })],
    [
      'with a path out of the bucket',
      400,
      'Invalid key',
      () => ({ headers: { 'upload-metadata': metadataOf({ ...place(), objectName: '../a' }) } }),
    ],
    [
      'for a bucket that is not there',
      404,
      'Bucket not found',
      () => ({ headers: { 'upload-metadata': metadataOf({ ...place(), bucketName: 'nowhere' }) } }),
    ],
    [
      'with a header in its type',
      400,
      'Invalid character',
      () => ({ headers: { 'upload-metadata': metadataOf({ ...place(), contentType: 'a\r\nb: c' }) } }),
    ],
    [
      'of more bytes than may be stored',
      413,
      'Maximum size exceeded',
      () => ({ headers: { 'upload-length': String(51 * MIB) } }),
    ],
    ['in parts side by side', 400, 'Upload-Concat', () => ({ headers: { 'upload-concat': 'partial' } })],
    ['without a token', 400, 'authorization', () => ({ token: '' })],
    ['with a wrong token', 403, '', () => ({ token: 'abc' })],
  ])('%s', async (_, status, text, wire) => {
    const { headers, ...more } = wire()
    const reply = await ask('POST', urlOf(), {
      ...more,
      headers: { 'upload-length': '10', 'upload-metadata': metadataOf(place()), ...headers },
    })
    expect([reply.status, reply.text]).toEqual([status, expect.stringContaining(text)])
    expect(reply.headers.get('tus-resumable')).toBe('1.0.0')
    expect(reply.headers.get('tus-version')).toBe(status === 412 ? '1.0.0' : null)
  })

  it('for a type or a size that the bucket refuses', async () => {
    const strict = await newBucket(storage, { allowed_mime_types: ['image/*'], file_size_limit: 100 })
    const creation = (size: number, contentType: string) =>
      create(newName(), { size, fields: { bucketName: strict, contentType } })
    expect((await creation(100, 'image/png')).status).toBe(201)
    expect(await creation(101, 'image/png')).toMatchObject({ status: 413, text: 'Maximum size exceeded\n' })
    expect((await creation(100, 'text/html')).status).toBe(415)
    expect((await creation(100, 'image/png;a=b, text/html')).status).toBe(415)
  })

  it('of bytes that the bucket refuses by then', async () => {
    const changed = await newBucket(storage)
    const limit = async (fields: object) =>
      expect((await apiOf(storage, storage.keys.service).put(`bucket/${changed}`, fields)).status).toBe(200)
    const fields = { bucketName: changed, contentType: 'text/plain' }
    const location = await beginUpload(newName(), { size: 20, fields })
    const rest = () => send(location, 5, randomBytes(15))
    expect((await send(location, 0, randomBytes(5))).status).toBe(204)
    await limit({ file_size_limit: 19 })
    expect(await rest()).toMatchObject({ status: 413, text: 'Maximum size exceeded\n' })
    await limit({ file_size_limit: 20, allowed_mime_types: ['image/*'] })
    expect(await rest()).toMatchObject({ status: 415, text: 'mime type text/plain is not supported' })
    await limit({ allowed_mime_types: ['text/*'] })
    expect((await rest()).status).toBe(204)
    await limit({ file_size_limit: 1 })
    expect((await send(location, 20, new Uint8Array())).status).toBe(204)
    const deferred = { 'upload-length': undefined, 'upload-defer-length': '1' }
    const grown = await beginUpload(newName(), { fields, headers: deferred })
    await limit({ file_size_limit: 9 })
    expect((await send(grown, 0, randomBytes(10))).status).toBe(413)
    expect((await send(grown, 0, randomBytes(9), { headers: { 'upload-length': '9' } })).status).toBe(204)
  })

  it.each<[string, number, Wire]>([
    ['of another type', 415, { headers: { 'content-type': 'application/octet-stream' } }],
    ['without an offset', 400, { headers: { 'upload-offset': undefined } }],
    ['with a wrong offset', 400, { headers: { 'upload-offset': 'x' } }],
    ['ahead of what has come', 409, { headers: { 'upload-offset': '5' } }],
    ['of another length', 400, { headers: { 'upload-length': '11' } }],
    ['of more bytes than were said', 413, { body: randomBytes(11) }],
    ['after its time', 404, { at: new Date(Date.now() + 2 * DAY_MS) }],
  ])('%s', async (_, status, wire) => {
    const location = await beginUpload(newName(), { size: 10 })
    expect((await send(location, 0, wire.body ?? randomBytes(5), wire)).status).toBe(status)
    expect(await ask('HEAD', location)).toMatchObject({ status: 200, offset: '0' })
  })

  it('of more bytes than announced, refused during their transfer', async () => {
    const location = await beginUpload(newName(), { size: 10 })
    const body = new Blob([randomBytes(20)]).stream() as unknown as Uint8Array
    const response = await fetch(location, {
      method: 'PATCH',
      duplex: 'half',
      headers: {
        authorization: `Bearer ${storage.keys.service}`,
        'tus-resumable': '1.0.0',
        'content-type': 'application/offset+octet-stream',
        'upload-offset': '0',
      },
      body: body as BodyInit,
    } as RequestInit)
    expect(response.status).toBe(413)
    expect(await ask('HEAD', location)).toMatchObject({ offset: '0' })
  })

  it('for an unknown upload', async () => {
    for (const id of [randomUUID(), 'what', 'sign']) {
      expect((await ask('HEAD', urlOf(`/${id}`))).status).toBe(404)
      expect((await send(urlOf(`/${id}`), 0, randomBytes(1))).status).toBe(404)
      expect((await ask('DELETE', urlOf(`/${id}`))).status).toBe(404)
    }
    expect((await ask('GET', await beginUpload(newName()))).status).toBe(404)
  })
})

describe('access to an upload', () => {
  const [mine, theirs] = [randomUUID(), randomUUID()]

  it('is decided by the policies, at its creation and at its end', async () => {
    const token = await user(mine)
    expect((await create(newName(), { token })).status).toBe(403)
    await sql(`create policy own on storage.objects for insert to authenticated with check (bucket_id = '${bucket}'
      and owner_id = auth.uid()::text and storage.operation() like 'storage.tus.upload.%')`)
    const [name, bytes] = [newName(), randomBytes(PART + 1)]
    const location = await beginUpload(name, { size: bytes.length, token })
    expect(await send(location, 0, bytes.subarray(0, PART), { token })).toMatchObject({ offset: String(PART) })
    expect(await send(location, PART, bytes.subarray(PART), { token })).toMatchObject({ status: 204 })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    const [row] = await sql('select owner_id from storage.objects where name = $1', [name])
    expect(row).toEqual({ owner_id: mine })

    const refused = newName()
    const second = await beginUpload(refused, { size: bytes.length, token })
    await send(second, 0, bytes.subarray(0, PART), { token })
    await sql('drop policy own on storage.objects')
    expect((await send(second, PART, bytes.subarray(PART), { token })).status).toBe(403)
    expect((await ask('HEAD', second, { token })).status).toBe(404)
    expect(await infoOf(refused)).toBeNull()
    await expectNoStrayBytes(storage, sql)
  })

  it('is limited to the creator and the service role', async () => {
    await sql(`create policy all_of_them on storage.objects for insert to authenticated, anon with check (true)`)
    const location = await beginUpload(newName(), { size: 10, token: await user(mine) })
    const others = [await user(theirs), storage.keys.anon]
    for (const token of others) {
      expect((await ask('HEAD', location, { token })).status).toBe(404)
      expect((await send(location, 0, randomBytes(1), { token })).status).toBe(404)
      expect((await ask('DELETE', location, { token })).status).toBe(404)
    }
    const another = await newStorage(storage.organization)
    expect((await ask('HEAD', location, { token: another.keys.service })).status).toBe(403)
    const elsewhere = location.replace(storage.ref, another.ref)
    expect((await ask('HEAD', elsewhere, { token: another.keys.service })).status).toBe(404)
    expect((await ask('HEAD', location.replace('/resumable/', '/resumable/sign/'))).status).toBe(404)
    expect((await ask('HEAD', location)).status).toBe(200)
    expect((await send(location, 0, randomBytes(4), { token: await user(mine) })).status).toBe(204)
    await sql('drop policy all_of_them on storage.objects')
  })

  it('by signature accepts no token instead, and none that was signed for another purpose', async () => {
    const objects = clientOf(storage, storage.keys.service).from(bucket)
    const [name, other] = [newName(), newName()]
    const { data: right } = await objects.createSignedUploadUrl(name)
    const { data: wrong } = await objects.createSignedUploadUrl(other)
    const headers = (signature?: string) => ({
      'upload-length': '10',
      'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }),
      ...(signature && { 'x-signature': signature }),
    })
    const url = urlOf('/sign')
    const unsigned = { status: 400, text: 'Missing x-signature header' }
    expect(await ask('POST', url, { headers: headers() })).toMatchObject(unsigned)
    expect((await ask('POST', url, { headers: headers(wrong?.token) })).status).toBe(400)
    const made = await ask('POST', url, { headers: headers(right?.token) })
    expect(made.status).toBe(201)
    const location = made.headers.get('location') ?? ''
    expect((await ask('HEAD', location)).status).toBe(400)
    expect(await ask('DELETE', location)).toMatchObject(unsigned)
    expect((await ask('HEAD', location, { headers: { 'x-signature': wrong?.token } })).status).toBe(400)
    expect((await ask('HEAD', location, { headers: { 'x-signature': right?.token } })).status).toBe(200)
    expect((await ask('HEAD', location.replace('/sign/', '/'))).status).toBe(404)
    const { data: again } = await objects.createSignedUploadUrl(name)
    expect((await ask('HEAD', location, { headers: { 'x-signature': again?.token } })).status).toBe(404)
  })

  it('by signature continues after the token has expired, and begins only before', async () => {
    const [name, bytes] = [newName(), randomBytes(10)]
    const { data } = await clientOf(storage, storage.keys.service).from(bucket).createSignedUploadUrl(name)
    const headers = { 'x-signature': data?.token }
    const begin = (at: Date) =>
      ask('POST', urlOf('/sign'), {
        ...{ at, token: '' },
        headers: {
          ...{ 'upload-length': '10', 'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }) },
          ...headers,
        },
      })
    const begun = Date.now()
    const signed = { headers, token: '', at: new Date(begun + DAY_MS - 60_000) }
    expect(await begin(signed.at)).toMatchObject({ status: 400, text: '"exp" claim timestamp check failed' })
    const [location, other] = [await begin(new Date(begun)), await begin(new Date(begun))].map(
      (made) => made.headers.get('location') ?? '',
    ) as [string, string]
    expect(await send(location, 0, bytes.subarray(0, 4), signed)).toMatchObject({ status: 204, offset: '4' })
    expect(await ask('HEAD', location, signed)).toMatchObject({ status: 200, offset: '4' })
    expect((await ask('DELETE', other, signed)).status).toBe(204)
    expect(await send(location, 4, bytes.subarray(4), signed)).toMatchObject({ status: 204, offset: '10' })
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    expect((await ask('HEAD', location, { ...signed, at: new Date(begun + DAY_MS + 60_000) })).status).toBe(404)
  })

  it("by signature accepts a token of the project's own server, however its id is spelled", async () => {
    const [name, bytes] = [newName(), randomBytes(10)]
    const { sign } = await signerOf(storage)
    const claims = { url: `${bucket}/${name}`, scope: 'upload', upsert: false, jti: randomUUID().toUpperCase() }
    const headers = { 'x-signature': await sign(claims) }
    const made = await ask('POST', urlOf('/sign'), {
      headers: {
        ...{ 'upload-length': '10', 'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }) },
        ...headers,
      },
    })
    const location = made.headers.get('location') ?? ''
    expect(await ask('HEAD', location, { headers })).toMatchObject({ status: 200, offset: '0' })
    expect(await send(location, 0, bytes, { headers })).toMatchObject({ status: 204, offset: '10' })
  })

  it("hides its token from the project's functions", async () => {
    const name = newName()
    await sql(`create table public.noted (headers text);
      create function public.note() returns trigger language plpgsql security definer as
        $$ begin insert into public.noted values (current_setting('request.headers')); return new; end $$;
      create trigger note before insert on storage.objects for each row execute function public.note()`)
    try {
      const { data } = await clientOf(storage, storage.keys.service).from(bucket).createSignedUploadUrl(name)
      const headers = {
        ...{ 'upload-length': '4', 'upload-metadata': metadataOf({ bucketName: bucket, objectName: name }) },
        ...{ 'content-type': 'application/offset+octet-stream', 'x-signature': data?.token },
      }
      const reply = await ask('POST', urlOf('/sign'), { headers, body: Buffer.from('text'), token: '' })
      expect([reply.status, reply.text]).toEqual([201, ''])
      const noted = JSON.stringify(await sql('select headers from public.noted'))
      expect(noted).toContain('upload-length')
      expect(noted).not.toContain(data?.token)
    } finally {
      await sql('drop function public.note cascade; drop table public.noted')
    }
  })
})

describe('at the same time', () => {
  it('one of several requests with the same bytes continues, and the others get an error', async () => {
    const [name, bytes] = [newName(), randomBytes(2 * PART)]
    const location = await beginUpload(name, { size: bytes.length })
    for (const offset of [0, PART]) {
      const part = bytes.subarray(offset, offset + PART)
      const replies = await Promise.all([1, 2, 3].map(() => send(location, offset, part)))
      const statuses = replies.map(({ status }) => status).sort()
      expect(statuses[0]).toBe(204)
      for (const status of statuses.slice(1)) expect([204, 409]).toContain(status)
      expect((await ask('HEAD', location)).offset).toBe(String(offset + PART))
    }
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    await expectNoStrayBytes(storage, sql)
  })

  it('a finished upload cannot be changed, however late its other bytes arrive', async () => {
    const [name, location] = [newName(), await beginUpload(newName(), { size: 10 })]
    const { hostname, port, pathname } = new URL(location)
    const late = request({
      ...{ hostname, port, path: pathname, method: 'PATCH', agent: false },
      headers: {
        ...{ authorization: `Bearer ${storage.keys.service}`, 'tus-resumable': '1.0.0', 'upload-offset': '0' },
        ...{ 'content-type': 'application/offset+octet-stream', 'content-length': '10' },
      },
    })
    late.write('BBBBBBBBB')
    const [row] = await vi.waitFor(async () => {
      const rows = await sql('select name, lease from pgbouncer.resumable_uploads where id = $1', [
        location.split('/').at(-1),
      ])
      expect(rows).toMatchObject([{ lease: expect.any(String) }])
      return rows
    })
    expect((await send(location, 0, Buffer.from('AAAAAAAAAA'))).status).toBe(204)
    late.end('B')
    const [reply] = await once(late, 'response')
    expect(reply.statusCode).toBe(409)
    expect((await downloaded(row?.name)).toString()).toBe('AAAAAAAAAA')
    expect(name).not.toBe(row?.name)
    await expectNoStrayBytes(storage, sql)
  })

  it('a finished part uses one number, and an interruption another', async () => {
    const [name, bytes] = [newName(), randomBytes(4 * PART)]
    const location = await beginUpload(name, { size: bytes.length })
    const partAt = (offset: number) => bytes.subarray(offset, offset + PART)
    for (const offset of [0, PART]) await send(location, offset, partAt(offset))
    const numbers = () =>
      sql(
        'select n from pgbouncer.resumable_parts join pgbouncer.resumable_uploads on id = upload where name = $1 order by n',
        [name],
      )
    expect(await numbers()).toEqual([{ n: 1 }, { n: 2 }])
    await sql('update pgbouncer.resumable_uploads set lease = gen_random_uuid() where name = $1', [name])
    for (const offset of [2 * PART]) await send(location, offset, partAt(offset))
    expect(await numbers()).toEqual([{ n: 1 }, { n: 2 }, { n: 4 }])
    expect((await send(location, 3 * PART, partAt(3 * PART))).status).toBe(204)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })

  it.each([
    ['in the middle', 3 * PART],
    ['at its end', PART + 1],
  ])('it ends if S3 has no number for another part: %s', async (_, size) => {
    const name = newName()
    const location = await beginUpload(name, { size })
    const bytes = randomBytes(size)
    expect(await send(location, 0, bytes.subarray(0, PART))).toMatchObject({ status: 204, offset: String(PART) })
    await sql('update pgbouncer.resumable_uploads set next_part = 10001 where name = $1', [name])
    expect((await send(location, PART, bytes.subarray(PART))).status).toBe(413)
    expect(await infoOf(name)).toBeNull()
  })

  it('the first of several uploads of one new name that ends stays', async () => {
    const name = newName()
    const locations = await Promise.all([1, 2].map(() => beginUpload(name, { size: 4 })))
    const sent = locations.map((location, n) => send(location, 0, Buffer.from(`num${n}`)))
    const statuses = (await Promise.all(sent)).map(({ status }) => status)
    expect([...statuses].sort()).toEqual([204, 409])
    expect((await downloaded(name)).toString()).toBe(`num${statuses.indexOf(204)}`)
    await expectNoStrayBytes(storage, sql)
  })
})

describe('the remains of an upload', () => {
  const { endpoint, bucket: Bucket, ...credentials } = inject('s3')
  const client = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
  const keyOf = (id: string) => `projects/${storage.ref}/storage/${id}`

  it('are removed when the client gives up', async () => {
    const [name, bytes] = [newName(), randomBytes(PART + 9)]
    const location = await beginUpload(name, { size: 2 * PART })
    expect((await send(location, 0, bytes)).offset).toBe(String(bytes.length))
    const [row] = await uploadsOf(name)
    expect((await ask('DELETE', location)).status).toBe(204)
    expect((await ask('HEAD', location)).status).toBe(404)
    expect(await uploadsOf(name)).toEqual([])
    const complete = new CompleteMultipartUploadCommand({
      ...{ Bucket, Key: keyOf(row?.id), UploadId: row?.upload_id },
      MultipartUpload: { Parts: [{ PartNumber: 1, ETag: '"none"' }] },
    })
    await expect(client.send(complete)).rejects.toMatchObject({ name: 'NoSuchUpload' })
    await expectNoStrayBytes(storage, sql)
  })

  it('are completed by the next request if the server died between the bytes and the row', async () => {
    const [name, bytes] = [newName(), randomBytes(2 * PART)]
    const location = await beginUpload(name, { size: bytes.length })
    await send(location, 0, bytes.subarray(0, PART))
    const [row] = await uploadsOf(name)
    const parts = await sql('select n, etag from pgbouncer.resumable_parts where upload = $1', [row?.id])
    const target = { Bucket, Key: keyOf(row?.id), UploadId: row?.upload_id }
    const last = bytes.subarray(PART)
    const { ETag } = await client.send(new UploadPartCommand({ ...target, PartNumber: 9, Body: last }))
    const Parts = [...parts.map(({ n, etag }) => ({ PartNumber: n, ETag: etag })), { PartNumber: 9, ETag }]
    await client.send(new CompleteMultipartUploadCommand({ ...target, MultipartUpload: { Parts } }))
    expect(await ask('HEAD', location)).toMatchObject({ offset: String(PART) })
    expect((await send(location, PART, last)).status).toBe(204)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
  })

  it('are reported if the bucket has dropped the parts', async () => {
    const [name, bytes] = [newName(), randomBytes(2 * PART)]
    const location = await beginUpload(name, { size: bytes.length })
    await send(location, 0, bytes.subarray(0, PART))
    await sql(`update pgbouncer.resumable_uploads set upload_id = 'gone' where name = $1`, [name])
    expect((await send(location, PART, bytes.subarray(PART))).status).toBe(404)
    expect(await infoOf(name)).toBeNull()
  })
})

// A sweep removes the bytes that a trigger refuses, so no test after these counts bytes.
describe('an upload that is refused at its end', () => {
  const raising = (body: string) =>
    sql(`create or replace function public.raising() returns trigger language plpgsql as $$ begin ${body} end $$;
      drop trigger if exists raising on storage.objects;
      create trigger raising before insert on storage.objects for each row execute function public.raising()`)
  afterEach(() => sql('drop trigger if exists raising on storage.objects'))

  it.each([
    ['in parts', 2 * PART],
    ['without', 10],
  ])('temporarily can be sent again: an upload %s', async (_, size) => {
    const [name, bytes] = [newName(), randomBytes(size)]
    const location = await beginUpload(name, { size })
    await raising(`raise 'later' using errcode = '40001';`)
    expect((await send(location, 0, bytes)).status).toBe(423)
    await sql('drop trigger raising on storage.objects')
    const { offset } = await ask('HEAD', location)
    expect((await send(location, Number(offset), bytes.subarray(Number(offset)))).status).toBe(204)
    expect((await downloaded(name)).equals(bytes)).toBe(true)
    await expectNoStrayBytes(storage, sql)
  })

  it.each([
    ['a trigger refuses', `raise 'never';`, 400],
    ['a trigger leaves out', 'return null;', 403],
  ])('permanently, because %s the row, is removed', async (_, body, status) => {
    const name = newName()
    const location = await beginUpload(name, { size: 10 })
    await raising(body)
    expect((await send(location, 0, randomBytes(10))).status).toBe(status)
    expect((await ask('HEAD', location)).status).toBe(404)
    expect(await infoOf(name)).toBeNull()
  })
})

describe('an upload whose row the owner changes', () => {
  const otherTail = `new.tail := (select version from storage.objects where name = 'tail.bin')`
  it.each([
    ['parts that do not fit into memory', 'new.part_bytes := 2000000000'],
    ['more bytes than the upload has', 'new.received := 10000000000'],
    ['a tail as long as a part', `${otherTail}; new.tail_bytes := ${PART}; new.received := ${PART}`],
    ['a tail that is longer than recorded', `${otherTail}; new.tail_bytes := 1`],
  ])('takes no memory by sizes that a trigger of the owner wrote: %s', async (_, change) => {
    await upload(randomBytes(PART), 'tail.bin')
    const location = await beginUpload(newName(), { size: 3 * PART })
    await send(location, 0, randomBytes(1))
    const trigger = `create function public.rewrite() returns trigger language plpgsql as
        $$ begin ${change}; return new; end $$;
      create trigger rewrite before update on pgbouncer.resumable_uploads for each row execute function public.rewrite()`
    expect((await runSql(storage.organization.owner, storage.ref, trigger)).status).toBe(201)
    const sent = await send(location, 1, randomBytes(2 * PART))
    await sql('drop function public.rewrite cascade')
    expect(sent).toMatchObject({ status: 404, text: 'The upload was not found' })
  })
})

it.each([false, true])('stays with the parent when a branch is made of it, with data: %s', async (with_data) => {
  const location = await beginUpload(newName(), { size: 2 * PART })
  await send(location, 0, randomBytes(PART + 9))
  const { project_ref } = await newBranch(storage.organization.owner, storage.ref, { with_data })
  const branch = await openSql({ ref: project_ref })
  const [counts] = await branch.sql(
    `select (select count(*)::int from pgbouncer.resumable_uploads) as uploads,
       (select count(*)::int from pgbouncer.resumable_parts) as parts`,
  )
  await branch.close()
  expect(counts).toEqual({ uploads: 0, parts: 0 })
})

it('is hidden from the roles of the API, and the owner of the database cannot change it', async () => {
  const [rights] = await sql(
    `select bool_or(has_table_privilege(r, t, p)) as any
       from unnest(array['anon', 'authenticated', 'service_role']) as r,
         unnest(array['pgbouncer.resumable_uploads', 'pgbouncer.resumable_parts']) as t,
         unnest(array['select', 'insert', 'update', 'delete', 'truncate']) as p`,
  )
  expect(rights).toEqual({ any: false })
  for (const change of [
    'insert into pgbouncer.used_tokens values (gen_random_uuid(), now())',
    'update pgbouncer.resumable_uploads set size_max = size_max',
    'delete from pgbouncer.resumable_parts',
    'set session_replication_role = replica; truncate pgbouncer.removed_versions',
    'alter table pgbouncer.removed_versions disable trigger guard_rows',
    'drop trigger guard_rows on pgbouncer.used_tokens',
    'alter table pgbouncer.resumable_parts owner to postgres',
    'drop table pgbouncer.resumable_uploads cascade',
  ])
    expect(await runSql(storage.organization.owner, storage.ref, change)).toMatchObject({
      status: 400,
      body: { code: '42501' },
    })
})

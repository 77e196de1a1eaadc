import { randomBytes, randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { as } from '../../support/api.ts'
import { type Machine, newMachine } from '../../support/machine.ts'
import { exchange, newBucket, newStorage, type TestStorage, TOO_LARGE } from '../../support/storage.ts'

interface Refused {
  type: string
  key: string
  token(): string
  contentType?: string
}

const TEXT = 'compressible '.repeat(1000)

let machine: Machine
let storage: TestStorage
let bucket: string
let authorization: string
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
  await machine.started()
  const { base_url, access_token, organization_slug: slug } = machine.credentials()
  storage = await newStorage({ owner: as(access_token, {}, base_url), slug }, base_url)
  bucket = await newBucket(storage, { public: true, file_size_limit: 100_000 })
  authorization = `Bearer ${storage.keys.service}`
})
afterAll(() => machine?.dispose())

const upload = (headers: Record<string, string>, body: string | string[], unfinished = false) =>
  exchange(`${storage.url}/object/${bucket}/${randomUUID()}`, {
    ...{ method: 'POST', headers: { authorization, 'content-type': 'text/plain', ...headers }, body, unfinished },
  })

describe('an upload that is too large', () => {
  it.each([
    ['is refused before it is sent', { 'content-length': '1000000000' }, 'x'],
    ['is refused while it still comes', { 'transfer-encoding': 'chunked' }, Array(20).fill('x'.repeat(10_000))],
    [
      'is refused while it still comes in a form',
      { 'content-type': 'multipart/form-data; boundary=b', 'content-length': '1000000000' },
      ['--b\r\ncontent-disposition: form-data; name=""; filename="f"\r\n\r\n', ...Array(20).fill('x'.repeat(10_000))],
    ],
  ] as [string, Record<string, string>, string | string[]][])('%s', async (_, headers, body) => {
    const reply = await upload(headers, body, true)
    expect([reply.status, JSON.parse(reply.body)]).toEqual([400, TOO_LARGE])
  })
})

describe('a large form that is refused', () => {
  it.each([
    ['KeyAlreadyExists', { type: 'text/plain', key: 'taken', token: () => storage.keys.service }],
    ['AccessDenied', { type: 'text/plain', key: 'new', token: () => storage.keys.anon }],
    ['EntityTooLarge', { type: 'text/plain', key: 'new', token: () => storage.keys.service }],
    ['InvalidRequest', { type: 'text/plain', key: 'new', token: () => storage.keys.service, contentType: 'ä' }],
  ])('gets the error %s, and is not cut off', async (code, { type, key, token, contentType }: Refused) => {
    const taken = `${storage.url}/object/${bucket}/taken`
    await exchange(taken, { method: 'PUT', headers: { authorization, 'content-type': 'text/plain' }, body: 'x' })
    const form = new FormData()
    if (contentType) form.append('contentType', contentType)
    form.append('', new Blob([randomBytes(20 * 1024 ** 2)], { type }))
    const headers = { authorization: `Bearer ${token()}` }
    const reply = await fetch(`${storage.url}/object/${bucket}/${key}`, { method: 'POST', headers, body: form })
    expect(await reply.json()).toMatchObject({ code })
  })
})

describe('an object', () => {
  it('is sent as it is stored, with its length', async () => {
    const { body } = await upload({ 'content-length': String(TEXT.length) }, TEXT)
    const url = `${storage.url}/object/public/${JSON.parse(body).Key}`
    const headers = { 'accept-encoding': 'gzip, br' }
    const whole = await exchange(url, { headers })
    expect([whole.status, whole.body === TEXT]).toEqual([200, true])
    const head = await exchange(url, { method: 'HEAD', headers })
    const part = await exchange(url, { headers: { ...headers, range: 'bytes=1-3' } })
    expect([part.status, part.body]).toEqual([206, 'omp'])
    const known = await exchange(url, { headers: { ...headers, 'if-none-match': head.headers.etag ?? '' } })
    expect([known.status, known.body]).toEqual([304, ''])
    for (const [reply, length] of [
      [whole, TEXT.length],
      [head, TEXT.length],
      [part, 3],
    ] as const) {
      expect(reply.headers['content-length']).toBe(String(length))
      expect(reply.headers['content-encoding']).toBeUndefined()
    }
  })

  it('of unknown length is stored completely', async () => {
    const { body } = await upload({ 'transfer-encoding': 'chunked' }, ['one ', 'two ', 'three'])
    const { Key } = JSON.parse(body)
    expect((await exchange(`${storage.url}/object/public/${Key}`)).body).toBe('one two three')
  })
})

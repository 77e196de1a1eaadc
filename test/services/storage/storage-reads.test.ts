import { createHash, randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Caller, workerLogs } from '../../support/api.ts'
import { runSql } from '../../support/projects.ts'
import {
  apiOf,
  exchange,
  invalid,
  NO_BUCKET,
  NO_OBJECT,
  newBucket,
  newStorage,
  refusal,
  type TestStorage,
} from '../../support/storage.ts'

const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const HTTP_TIME = expect.stringMatching(/^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/)
const INVALID_RANGE = refusal(416, 'invalid_range', 'InvalidRange', 'invalid range provided')

const TEXT = '0123456789'
const ETAG = `"${createHash('md5').update(TEXT).digest('hex')}"`

let storage: TestStorage
let service: Caller
let anon: Caller
let anyone: Caller
let bucket: string
let open: string
let signed: string
beforeAll(async () => {
  storage = await newStorage()
  service = apiOf(storage, storage.keys.service)
  anon = apiOf(storage, storage.keys.anon)
  anyone = apiOf(storage)
  ;[bucket, open] = await Promise.all([newBucket(storage), newBucket(storage, { public: true })])
  await Promise.all([bucket, open].map((name) => upload(`${name}/dir/a.txt`, TEXT)))
  signed = await sign(`${bucket}/dir/a.txt`)
})

/** The header for an object with `max-age=60`: shared caches must not store what only some may read. */
const cacheControl = (isPublic: boolean) => (isPublic ? 'max-age=60' : 'private, max-age=60')
const plain = { 'content-type': 'text/plain', 'cache-control': 'max-age=60' }
async function upload(path: string, raw: BodyInit, headers: Record<string, string> = plain) {
  expect(await service.send('POST', `object/${path}`, { raw, headers })).toMatchObject({ status: 200 })
}
async function sign(path: string, expiresIn: unknown = 60): Promise<string> {
  const reply = await service.post(`object/sign/${path}`, { expiresIn })
  expect(reply.status).toBe(200)
  return reply.body.signedURL.slice(1)
}

/** Every way to read bytes, as it is on the wire. */
const ROUTES = {
  bare: () => ({ path: `object/${bucket}/dir/a.txt`, credential: true }),
  authenticated: () => ({ path: `object/authenticated/${bucket}/dir/a.txt`, credential: true }),
  public: () => ({ path: `object/public/${open}/dir/a.txt`, credential: false }),
  'bare, of a public bucket': () => ({ path: `object/${open}/dir/a.txt`, credential: false }),
  signed: () => ({ path: signed, credential: false }),
} as const
type Way = keyof typeof ROUTES

function fetched(way: Way, headers: Record<string, string> = {}, { method = 'GET', query = '' } = {}) {
  const { path, credential } = ROUTES[way]()
  const authorization = credential && { authorization: `Bearer ${storage.keys.service}` }
  return exchange(`${storage.url}/${path}${query}`, { method, headers: { ...headers, ...authorization } })
}

const headOf = ({ token }: Caller, path: string) =>
  exchange(`${storage.url}/${path}`, { method: 'HEAD', headers: token ? { authorization: `Bearer ${token}` } : {} })

describe.each(Object.keys(ROUTES) as Way[])('an object that is read by %s', (way) => {
  const keeping = way === 'signed' ? { expires: HTTP_TIME } : { 'cache-control': cacheControl(way.includes('public')) }
  const described = {
    ...{ 'accept-ranges': 'bytes', etag: ETAG, 'last-modified': HTTP_TIME, 'x-robots-tag': 'none' },
    ...keeping,
  }

  it('is complete, and has a head without its bytes', async () => {
    const headers = { ...described, 'content-type': 'text/plain', 'content-length': '10' }
    expect(await fetched(way)).toMatchObject({ status: 200, body: TEXT, headers })
    expect(await fetched(way, {}, { method: 'HEAD' })).toMatchObject({ status: 200, body: '', headers })
    if (way === 'signed') expect((await fetched(way)).headers['cache-control']).toBeUndefined()
  })

  it.each([
    ['bytes=0-0', '0', '0-0'],
    ['bytes=2-4', '234', '2-4'],
    ['bytes=7-', '789', '7-9'],
    ['bytes=-2', '89', '8-9'],
    ['bytes=8-100', '89', '8-9'],
    ['bytes=-100', TEXT, '0-9'],
    ['bytes=3-9223372036854775807', '3456789', '3-9'],
    ['bytes=-9223372036854775807', TEXT, '0-9'],
    ['Bytes=0-1', '01', '0-1'],
  ])('is returned in part: %s', async (range, body, sent) => {
    const headers = { ...described, 'content-length': String(body.length), 'content-range': `bytes ${sent}/10` }
    expect(await fetched(way, { range })).toMatchObject({ status: 206, body, headers })
  })

  it.each([
    'bytes=10-',
    'bytes=9223372036854775807-',
    'bytes=4-2',
    'bytes=-0',
    'bytes=0-1,3-4',
    'bytes=',
    'bytes=-',
    'bytes=a-b',
    'lines=1-2',
  ])('has no range %s', async (range) => {
    const reply = await fetched(way, { range })
    expect([reply.status, JSON.parse(reply.body)]).toEqual([416, INVALID_RANGE])
    expect(reply.headers['content-range']).toBe('bytes */10')
  })

  it('is not sent to a client that has it cached', async () => {
    const { headers } = await fetched(way)
    const modified = headers['last-modified'] ?? ''
    const earlier = new Date(Date.parse(modified) - 1000).toUTCString()
    const later = new Date(Date.parse(modified) + 1000).toUTCString()
    for (const [condition, status] of [
      [{ 'if-none-match': ETAG }, 304],
      [{ 'if-none-match': `W/${ETAG}` }, 304],
      [{ 'if-none-match': `"x", W/"y, z" , ${ETAG}` }, 304],
      [{ 'if-none-match': '*' }, 304],
      [{ 'if-none-match': '"x"' }, 200],
      [{ 'if-none-match': '' }, 200],
      [{ 'if-modified-since': modified }, 304],
      [{ 'if-modified-since': later }, 304],
      [{ 'if-modified-since': earlier }, 200],
      [{ 'if-modified-since': 'yesterday' }, 200],
      [{ 'if-none-match': '"x"', 'if-modified-since': later }, 200],
      [{ 'if-none-match': ETAG, 'if-modified-since': earlier }, 304],
      [{ 'if-none-match': ETAG, range: 'bytes=0-1' }, 304],
      [{ 'if-range': ETAG, range: 'bytes=0-1' }, 206],
      [{ 'if-range': '"x"', range: 'bytes=0-1' }, 200],
      [{ 'if-range': `W/${ETAG}`, range: 'bytes=0-1' }, 200],
      [{ 'if-range': modified, range: 'bytes=0-1' }, 200],
      [{ 'if-range': later, range: 'bytes=0-1' }, 200],
      [{ 'if-range': earlier, range: 'bytes=0-1' }, 200],
      [{ 'if-range': '"x"', range: 'bytes=99-' }, 200],
    ] as [Record<string, string>, number][]) {
      const reply = await fetched(way, condition)
      const body = { 200: TEXT, 206: '01', 304: '' }[status]
      expect([condition, reply.status, reply.body]).toEqual([condition, status, body])
      if (status === 304) expect(reply.headers).toMatchObject({ etag: ETAG, ...keeping })
    }
  })

  it('is not sent to a client that asks for another version', async () => {
    const modified = (await fetched(way)).headers['last-modified'] ?? ''
    const earlier = new Date(Date.parse(modified) - 1000).toUTCString()
    const range = 'bytes=0-1'
    for (const [condition, status] of [
      [{ 'if-match': ETAG }, 200],
      [{ 'if-match': '*' }, 200],
      [{ 'if-match': `"x, y", ${ETAG}`, range }, 206],
      [{ 'if-match': '"x"' }, 412],
      [{ 'if-match': '"x"', range }, 412],
      [{ 'if-match': `W/${ETAG}` }, 412],
      [{ 'if-match': '"x"', 'if-none-match': ETAG }, 412],
      [{ 'if-match': ETAG, 'if-none-match': ETAG }, 304],
      [{ 'if-match': ETAG, 'if-unmodified-since': earlier, range }, 206],
      [{ 'if-unmodified-since': modified }, 200],
      [{ 'if-unmodified-since': 'yesterday' }, 200],
      [{ 'if-unmodified-since': earlier }, 412],
    ] as [Record<string, string>, number][]) {
      const reply = await fetched(way, condition)
      expect([condition, reply.status]).toEqual([condition, status])
      if (status === 412)
        expect(JSON.parse(reply.body)).toMatchObject({ statusCode: '412', code: 'PreconditionFailed' })
    }
  })

  it('has the same head, whatever range is requested', async () => {
    const asked: Record<string, string>[] = [
      { range: 'bytes=0-1' },
      { range: 'bytes=99-' },
      { 'if-none-match': ETAG },
      { 'if-match': '"x"' },
    ]
    for (const headers of asked) {
      const reply = await fetched(way, headers, { method: 'HEAD' })
      expect(reply).toMatchObject({ status: 200, body: '', headers: { 'content-length': '10', etag: ETAG } })
    }
  })

  it.each([
    ['', 'attachment;'],
    ['b.txt', "attachment; filename=b.txt; filename*=UTF-8''b.txt"],
    ['ä "b";.txt', "attachment; filename=%C3%A4%20%22b%22%3B.txt; filename*=UTF-8''%C3%A4%20%22b%22%3B.txt"],
    ["(it's)*", "attachment; filename=%28it%27s%29%2A; filename*=UTF-8''%28it%27s%29%2A"],
    ['a\r\nx: y', "attachment; filename=a%0D%0Ax%3A%20y; filename*=UTF-8''a%0D%0Ax%3A%20y"],
  ])('is downloaded as %j', async (name, disposition) => {
    const query = `${way === 'signed' ? '&' : '?'}download=${encodeURIComponent(name)}`
    for (const method of ['GET', 'HEAD']) {
      expect((await fetched(way, {}, { method, query })).headers['content-disposition']).toBe(disposition)
    }
  })
})

describe('an object', () => {
  it.each([
    ['public, max-age=60', 'private, max-age=60'],
    ['s-maxage=60', 'private'],
    ['no-cache', 'private, no-cache'],
    ['max-age=60, Private', 'max-age=60, Private'],
    ['private="x", max-age=60', 'private, private="x", max-age=60'],
    ['no-store', 'no-store'],
  ])('with the cache control %s is for the caches of its reader only: %s', async (stored, sent) => {
    for (const [name, expected] of [
      [bucket, sent],
      [open, stored],
    ] as const) {
      const path = `${name}/${randomUUID()}`
      await upload(path, 'x', { ...plain, 'cache-control': stored })
      const replies = [await service.get(`object/${path}`), await service.get(`object/info/${path}`)]
      expect(replies.map(({ headers }) => headers.get('cache-control'))).toEqual([expected, expected])
    }
  })

  it.each([
    ['text/html', 'text/plain'],
    ['text/html; charset=utf-8', 'text/plain'],
    ['Text/HTML', 'text/plain'],
    ['text/plain', 'text/plain'],
    ['Text/Plain;charset=UTF-8', 'Text/Plain;charset=UTF-8'],
    ['text/plain, text/html', 'text/plain'],
    ['image/svg+xml', 'image/svg+xml'],
    ['application/json; charset=latin1', 'application/json; charset=latin1'],
    ['nonsense', 'nonsense'],
  ])('of the type %s is served as %s', async (type, served) => {
    const path = `${bucket}/${randomUUID()}`
    await upload(path, '<b>x</b>', { 'content-type': type })
    const authorization = `Bearer ${storage.keys.service}`
    const reply = await exchange(`${storage.url}/object/${path}`, { headers: { authorization } })
    expect(reply).toMatchObject({ status: 200, headers: { 'content-type': served } })
    const isText = /^text\/plain(;|$)/i.test(type)
    expect(reply.headers['x-content-type-options']).toBe(isText ? undefined : 'nosniff')
    expect((await service.get(`object/info/${path}`)).body.content_type).toBe(type)
  })

  it('of no bytes is complete, and has no ranges', async () => {
    const path = `${open}/${randomUUID()}`
    await upload(path, '')
    const url = `${storage.url}/object/public/${path}`
    expect(await exchange(url)).toMatchObject({ status: 200, body: '', headers: { 'content-length': '0' } })
    const reply = await exchange(url, { headers: { range: 'bytes=0-' } })
    expect([reply.status, JSON.parse(reply.body)]).toEqual([416, INVALID_RANGE])
  })

  it('of more bytes than are cached is returned complete and in part', async () => {
    const path = `${open}/${randomUUID()}`
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, n) => 97 + (n % 26)))
    await upload(path, bytes)
    const url = `${storage.url}/object/public/${path}`
    const text = bytes.toString()
    expect((await exchange(url)).body === text).toBe(true)
    const headers = { range: 'bytes=150000-150009' }
    expect(await exchange(url, { headers })).toMatchObject({ status: 206, body: text.slice(150_000, 150_010) })
  })

  it('has the newest bytes as soon as they are stored', async () => {
    const path = `${open}/${randomUUID()}`
    for (const text of ['one', 'two', 'three']) {
      await service.send('PUT', `object/${path}`, { raw: text, headers: plain })
      expect((await anyone.get(`object/public/${path}`)).body).toBe(text)
    }
    await service.delete(`object/${path}`)
    expect((await anyone.get(`object/public/${path}`)).body).toEqual(NO_OBJECT)
  })
})

describe('the information of an object', () => {
  it.each([
    ['info/', true],
    ['info/authenticated/', true],
    ['info/public/', false],
    ['info/', false],
  ])('is at /object/%s', async (way, credential) => {
    const name = credential ? bucket : open
    const caller = credential ? service : anyone
    const path = `object/${way}${name}/dir/a.txt`
    const reply = await caller.get(path)
    const described = {
      ...{ id: UUID, name: 'dir/a.txt', version: UUID, bucket_id: name, size: 10, content_type: 'text/plain' },
      ...{ cache_control: 'max-age=60', content_encoding: null, etag: ETAG, metadata: {} },
      ...{ last_modified: TIME, created_at: TIME },
    }
    expect([reply.status, reply.body]).toEqual([200, described])
    const headers = {
      ...{ etag: ETAG, 'last-modified': HTTP_TIME, 'cache-control': cacheControl(!credential) },
      'content-type': expect.stringMatching(/^application\/json/),
    }
    expect(Object.fromEntries(reply.headers)).toMatchObject(headers)
    const length = String(
      (
        await exchange(`${storage.url}/${path}`, {
          headers: caller.token ? { authorization: `Bearer ${caller.token}` } : {},
        })
      ).body.length,
    )
    expect(await headOf(caller, path)).toMatchObject({
      status: 200,
      body: '',
      headers: { ...headers, 'content-length': length },
    })
  })
})

describe('an object that cannot be read', () => {
  it('has a head with the length of its error', async () => {
    const path = `object/${bucket}/nothing`
    const { body } = await exchange(`${storage.url}/${path}`, { headers: { authorization: `Bearer ${service.token}` } })
    const headers = {
      'content-length': String(body.length),
      'content-type': expect.stringContaining('application/json'),
    }
    expect(await headOf(service, path)).toMatchObject({ status: 400, body: '', headers })
  })

  const NO_CREDENTIAL = invalid("headers must have required property 'authorization'")
  it.each<[string, () => Caller, () => string, unknown]>([
    ['a missing object', () => service, () => `object/${bucket}/nothing`, NO_OBJECT],
    ['a folder', () => service, () => `object/${bucket}/dir`, NO_OBJECT],
    ['a missing object of a public bucket', () => anyone, () => `object/public/${open}/nothing`, NO_OBJECT],
    ['a missing bucket', () => service, () => 'object/nowhere/a', NO_BUCKET],
    ['a missing bucket, publicly', () => anyone, () => 'object/public/nowhere/a', NO_BUCKET],
    ['a private bucket, publicly', () => service, () => `object/public/${bucket}/dir/a.txt`, NO_BUCKET],
    ['a private bucket, publicly informed', () => service, () => `object/info/public/${bucket}/dir/a.txt`, NO_BUCKET],
    ['a private bucket without a key', () => anyone, () => `object/${bucket}/dir/a.txt`, NO_BUCKET],
    ['a private bucket without a key, informed', () => anyone, () => `object/info/${bucket}/dir/a.txt`, NO_BUCKET],
    ['a private bucket with nonsense', () => apiOf(storage, 'nonsense'), () => `object/${bucket}/dir/a.txt`, NO_BUCKET],
    ['what no policy shows', () => anon, () => `object/${bucket}/dir/a.txt`, NO_OBJECT],
    ['what no policy shows, informed', () => anon, () => `object/info/authenticated/${bucket}/dir/a.txt`, NO_OBJECT],
    ['without the key it needs', () => anyone, () => `object/authenticated/${open}/dir/a.txt`, NO_CREDENTIAL],
    ['information without its key', () => anyone, () => `object/info/authenticated/${open}/a`, NO_CREDENTIAL],
    [
      'with a key that does not hold',
      () => apiOf(storage, 'nonsense'),
      () => `object/authenticated/${open}/dir/a.txt`,
      refusal(403, 'Unauthorized', 'AccessDenied', 'Invalid Compact JWS'),
    ],
  ])('%s', async (_, caller, path, expected) => {
    const reply = await caller().get(path())
    expect([reply.status, reply.body]).toEqual([400, expected])
    expect(reply.headers.get('content-type')).toMatch(/^application\/json/)
    expect(reply.headers.get('cache-control')).toBe('no-store')
    expect(await headOf(caller(), path())).toMatchObject({ status: 400, body: '' })
  })

  it('is distinguished from a public object of a public bucket', async () => {
    for (const caller of [anon, apiOf(storage, 'nonsense')]) {
      expect(await caller.get(`object/${open}/dir/a.txt`)).toMatchObject({ status: 200, body: TEXT })
    }
    expect(await anon.get(`object/authenticated/${open}/dir/a.txt`)).toMatchObject({ status: 200, body: TEXT })
  })
})

describe('a row that SQL wrote', () => {
  it('has an etag of its own, and its missing bytes are reported by name', async () => {
    const { owner } = storage.organization
    const query = `insert into storage.objects (bucket_id, name) values ('${bucket}', 'by sql') returning id`
    const [{ id }] = (await runSql(owner, storage.ref, query)).body
    const info = await service.get(`object/info/${bucket}/by sql`)
    expect([info.body.version, info.body.etag]).toEqual([null, `"${id}"`])
    expect((await service.get(`object/${bucket}/by sql`)).body).toMatchObject({ code: 'NoSuchKey' })
    const lines = await workerLogs('storage_bytes_missing')
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ project: storage.ref, bucket, key: 'by sql', version: null }),
    )
  })
})

describe('a signed URL', () => {
  it('expires, and forbids to transform the bytes if their client does', async () => {
    for (const [name, sent, expected] of [
      ['transformed', 'max-age=60, no-transformation', undefined],
      ['untransformed', 'max-age=60, No-Transform', 'no-transform'],
    ] as const) {
      await upload(`${bucket}/${name}`, TEXT, { ...plain, 'cache-control': sent })
      const { headers } = await exchange(`${storage.url}/${await sign(`${bucket}/${name}`)}`)
      expect([headers['cache-control'], headers.expires]).toEqual([expected, HTTP_TIME])
    }
  })

  it('is a path with a token that names its purpose and its end', async () => {
    for (const expiresIn of [90, '90']) {
      const reply = await service.post(`object/sign/${bucket}/dir/a.txt`, { expiresIn })
      expect([reply.status, Object.keys(reply.body)]).toEqual([200, ['signedURL']])
      const [path, token = ''] = reply.body.signedURL.split('?token=')
      expect(path).toBe(`/object/sign/${bucket}/dir/a.txt`)
      const [head, claims] = token.split('.').map((part: string) => Buffer.from(part, 'base64url').toString())
      expect(JSON.parse(head)).toMatchObject({ alg: 'HS256' })
      const { iat, exp, ...rest } = JSON.parse(claims)
      expect([exp - iat, rest]).toEqual([90, { url: `${bucket}/dir/a.txt`, scope: 'download' }])
      const { headers } = await anyone.get(reply.body.signedURL.slice(1))
      expect(headers.get('expires')).toBe(new Date(exp * 1000).toUTCString())
    }
  })

  it('is created for many at once, each with its own result', async () => {
    const paths = ['dir/a.txt', 'nothing', 'dir/a.txt']
    const reply = await service.post(`object/sign/${bucket}`, { expiresIn: 60, paths })
    const one = {
      error: null,
      path: 'dir/a.txt',
      signedURL: expect.stringContaining(`/object/sign/${bucket}/dir/a.txt?`),
    }
    const error = 'Either the object does not exist or you do not have access to it'
    expect([reply.status, reply.body]).toEqual([200, [one, { error, path: 'nothing', signedURL: null }, one]])
    expect((await anon.post(`object/sign/${bucket}`, { expiresIn: 60, paths: ['dir/a.txt'] })).body).toEqual([
      { error, path: 'dir/a.txt', signedURL: null },
    ])
  })

  it.each<[string, string, unknown, unknown]>([
    ['a missing object', '/nothing', { expiresIn: 60 }, NO_OBJECT],
    ['no time', '/dir/a.txt', {}, invalid("body must have required property 'expiresIn'")],
    ['no time at all', '/dir/a.txt', { expiresIn: 0 }, invalid(expect.stringContaining('body/expiresIn'))],
    ['a word for a time', '/dir/a.txt', { expiresIn: 'soon' }, invalid(expect.stringContaining('body/expiresIn'))],
    ['half a second', '/dir/a.txt', { expiresIn: 0.5 }, invalid(expect.stringContaining('body/expiresIn'))],
    [
      'a transformed image',
      '/dir/a.txt',
      { expiresIn: 60, transform: { width: 100 } },
      refusal(409, 'FeatureNotEnabled', 'FeatureNotEnabled', expect.stringContaining('`transform`')),
    ],
    [
      'several transformed images',
      '',
      { expiresIn: 60, paths: ['dir/a.txt'], transform: { width: 100 } },
      refusal(409, 'FeatureNotEnabled', 'FeatureNotEnabled', expect.stringContaining('`transform`')),
    ],
    [
      'a wrong transformation',
      '/dir/a.txt',
      { expiresIn: 60, transform: 7 },
      invalid(expect.stringContaining('body/transform')),
    ],
    ['no paths', '', { expiresIn: 60 }, invalid("body must have required property 'paths'")],
    ['empty paths', '', { expiresIn: 60, paths: [] }, invalid(expect.stringContaining('body/paths'))],
    [
      'too many paths',
      '',
      { expiresIn: 60, paths: Array.from({ length: 1001 }, String) },
      invalid(expect.stringContaining('body/paths')),
    ],
  ])('is not created for %s', async (_, path, body, expected) => {
    const reply = await service.post(`object/sign/${bucket}${path}`, body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })

  it('requires the right to read the object', async () => {
    expect((await anon.post(`object/sign/${bucket}/dir/a.txt`, { expiresIn: 60 })).body).toEqual(NO_OBJECT)
    const reply = await anyone.post(`object/sign/${bucket}/dir/a.txt`, { expiresIn: 60 })
    expect(reply.body).toEqual(invalid("headers must have required property 'authorization'"))
  })

  it('reads only its object, during its time', async () => {
    const [path, token = ''] = signed.split('?token=')
    const forUpload = (await service.post(`object/upload/sign/${bucket}/new`, {})).body.token
    const jwt = (message: string) => refusal(400, 'InvalidJWT', 'InvalidJWT', message)
    const signature = (message: string) => refusal(400, 'InvalidSignature', 'InvalidSignature', message)
    for (const [target, expected] of [
      [path, invalid("querystring must have required property 'token'")],
      [`${path}?token=`, invalid("querystring must have required property 'token'")],
      [`${path}?token=nonsense`, jwt('Invalid Compact JWS')],
      [`${path}?token=${token.slice(0, -4)}AAAA`, jwt('signature verification failed')],
      [`${path}x?token=${token}`, signature('Invalid signature')],
      [`object/sign/${open}/dir/a.txt?token=${token}`, signature('Invalid signature')],
      [`object/sign/${bucket}/new?token=${forUpload}`, signature('Token is not scoped for download')],
    ] as const) {
      const reply = await anyone.get(target ?? '')
      expect([target, reply.status, reply.body]).toEqual([target, 400, expected])
    }
    const late = await anyone.at(new Date(Date.now() + 61_000)).get(signed)
    expect(late.body).toEqual(jwt('"exp" claim timestamp check failed'))
    const gone = await newBucket(storage)
    await upload(`${gone}/a`, TEXT)
    const url = await sign(`${gone}/a`)
    await service.delete(`object/${gone}/a`)
    expect((await anyone.get(url)).body).toEqual(NO_OBJECT)
  })
})

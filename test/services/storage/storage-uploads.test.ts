import { randomUUID } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Caller } from '../../support/api.ts'
import { runSql } from '../../support/projects.ts'
import {
  apiOf,
  exchange,
  invalid,
  KEY_TAKEN,
  NO_BUCKET,
  newBucket,
  newStorage,
  refusal,
  type TestStorage,
  TOO_LARGE,
} from '../../support/storage.ts'

const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)

let storage: TestStorage
let service: Caller
let anyone: Caller
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  service = apiOf(storage, storage.keys.service)
  anyone = apiOf(storage)
  bucket = await newBucket(storage)
})

type Headers = Record<string, string>
const upload = (path: string, raw: BodyInit | undefined, headers: Headers = {}, method = 'POST') =>
  service.send(method, `object/${path}`, { raw, headers })
const info = async (path: string) => (await service.get(`object/info/${path}`)).body
const read = async (path: string) => (await service.get(`object/${path}`)).body
const keyOf = (path: string) => path.slice(bucket.length + 1)
const newPath = (name: string = randomUUID()) => `${bucket}/${name}`
const plain = { 'content-type': 'text/plain' }

/** Makes a form with fields and files in the given order. */
function form(...parts: [name: string, value: string | Blob][]): FormData {
  const data = new FormData()
  for (const [name, value] of parts) data.append(name, value)
  return data
}
const file = (text: string, type = 'text/plain') => new Blob([text], { type })

describe('a raw upload', () => {
  it('is stored with the headers of its request', async () => {
    const path = newPath()
    const reply = await upload(path, 'x', {
      ...{ 'content-type': 'text/css; charset=latin1', 'cache-control': 'public, max-age=7' },
      ...{ 'x-metadata': btoa('{"by":"me"}'), 'x-robots-tag': 'noindex, max-snippet: 20' },
    })
    expect([reply.status, reply.body]).toEqual([200, { Key: path, Id: UUID }])
    const described = { size: 1, content_type: 'text/css; charset=latin1', cache_control: 'public, max-age=7' }
    expect(await info(path)).toMatchObject({ id: reply.body.Id, ...described, metadata: { by: 'me' } })
    const { headers } = await service.get(`object/${path}`)
    expect(headers.get('x-robots-tag')).toBe('noindex, max-snippet: 20')
  })

  it('without headers is stored as bytes that are not cached', async () => {
    const path = newPath()
    const headers = { authorization: `Bearer ${storage.keys.service}` }
    const url = `${storage.url}/object/${path}`
    expect(await exchange(url, { method: 'POST', headers, body: 'x' })).toMatchObject({ status: 200 })
    const defaults = { content_type: 'application/octet-stream', cache_control: 'no-cache', metadata: {} }
    expect(await info(path)).toMatchObject({ size: 1, ...defaults })
    expect((await service.get(`object/${path}`)).headers.get('x-robots-tag')).toBe('none')
  })

  it.each(['not base64!', btoa('no JSON'), btoa('[1]'), btoa('7')])(
    'with the invalid metadata %j has none',
    async (metadata) => {
      const path = newPath()
      expect(await upload(path, 'x', { 'x-metadata': metadata })).toMatchObject({ status: 200 })
      expect((await info(path)).metadata).toEqual({})
    },
  )

  it('without bytes is an empty object', async () => {
    const path = newPath()
    expect(await upload(path, undefined, plain)).toMatchObject({ status: 200 })
    expect(await info(path)).toMatchObject({ size: 0, etag: '"d41d8cd98f00b204e9800998ecf8427e"' })
    expect(await service.get(`object/${path}`)).toMatchObject({ status: 200, body: '' })
  })

  it.each(['noindex, everything', 'max-snippet: many'])('is refused with the X-Robots-Tag %j', async (tag) => {
    const reply = await upload(newPath(), 'x', { 'x-robots-tag': tag })
    const message = expect.stringContaining('Invalid X-Robots-Tag header')
    expect([reply.status, reply.body]).toEqual([400, refusal(400, 'invalid_x_robots_tag', 'InvalidRequest', message)])
  })

  it.each(['content-type', 'cache-control'])('is refused with a %s that could not be returned', async (name) => {
    const reply = await upload(newPath(), 'x', { ...plain, [name]: 'text/ä' })
    expect([reply.status, reply.body]).toEqual([400, refusal(400, 'invalid_header_char', 'InvalidRequest')])
  })
})

describe('metadata in a header', () => {
  it.each(['base64', 'base64url'] as const)('are read as %s', async (encoding) => {
    const path = newPath()
    const metadata = { a: '??>>ü~~' }
    const headers = { 'x-metadata': Buffer.from(JSON.stringify(metadata)).toString(encoding), ...plain }
    expect(await upload(path, 'x', headers)).toMatchObject({ status: 200 })
    expect(await info(path)).toMatchObject({ metadata })
  })
})

describe('a form', () => {
  it.each<[string, [string, string | Blob][], Record<string, unknown>]>([
    [
      'the file alone',
      [['', file('x', 'text/css')]],
      { content_type: 'text/css', cache_control: 'no-cache', metadata: {} },
    ],
    [
      'fields in front of the file',
      [
        ['cacheControl', '60'],
        ['metadata', '{"by":"me"}'],
        ['contentType', 'text/html'],
        ['other', 'field'],
        ['any name', file('x')],
      ],
      { content_type: 'text/html', cache_control: 'max-age=60', metadata: { by: 'me' } },
    ],
    [
      'fields behind it',
      [
        ['', file('x')],
        ['cacheControl', '60'],
        ['userMetadata', '{"by":"me"}'],
        ['contentType', 'text/css'],
      ],
      { content_type: 'text/css', cache_control: 'max-age=60', metadata: { by: 'me' } },
    ],
    [
      'metadata that are none',
      [
        ['metadata', '{'],
        ['', file('x')],
      ],
      { metadata: {} },
    ],
    [
      'words for how to keep it',
      [
        ['cacheControl', 'no-store'],
        ['', file('x')],
      ],
      { cache_control: 'no-store' },
    ],
  ])('has %s', async (_, parts, described) => {
    const path = newPath()
    const reply = await upload(path, form(...parts))
    expect([reply.status, reply.body]).toEqual([200, { Key: path, Id: UUID }])
    expect(await info(path)).toMatchObject({ size: 1, ...described })
    expect(await read(path)).toBe('x')
  })

  const named = (disposition: string) =>
    [
      '--b\r\ncontent-disposition: form-data; name="cacheControl"\r\n\r\n60',
      `--b\r\ncontent-disposition: form-data; ${disposition}\r\ncontent-type: image/png\r\n\r\nx`,
      '--b--\r\n',
    ].join('\r\n')
  it.each([
    'name=""; filename="照片.png"',
    'name=""; filename="Screenshot at 10.00.00\u202fAM.png"',
    'name=""; filename="a\u0308 “q” €.png"',
    'name="照片"; filename="😀.png"',
    'name=""; filename="a\tb.png"',
    'name=""; filename="f.png";',
    `name=""; filename*=UTF-8''%E7%85%A7.png`,
    `name=""; filename*=UTF-8''%zz.png`,
    'name=file; filename=f.png',
    'name="a; name=b"; filename="C:\\dir\\"',
    'filename="f.png"',
    'filename=f.png',
    'filename="照片.png"; name=""',
  ])('has a file with any name: %s', async (disposition) => {
    const path = newPath()
    const reply = await upload(path, named(disposition), { 'content-type': 'multipart/form-data; boundary=b;' })
    expect([reply.status, reply.body]).toEqual([200, { Key: path, Id: UUID }])
    expect(await info(path)).toMatchObject({ size: 1, content_type: 'image/png', cache_control: 'max-age=60' })
  })

  it('has a file whose name is in Latin-1', async () => {
    const path = newPath()
    const raw = Buffer.from(named('name=""; filename="\xe9.png"'), 'latin1')
    expect(await upload(path, raw, { 'content-type': 'multipart/form-data; boundary=b' })).toMatchObject({
      status: 200,
    })
    expect(await info(path)).toMatchObject({ size: 1, content_type: 'image/png' })
  })

  it('and a raw upload keep the encoding of their bytes, as do copies', async () => {
    const bytes = gzipSync('decoded')
    const raw = newPath()
    expect(await upload(raw, bytes, { ...plain, 'content-encoding': 'gzip' })).toMatchObject({ status: 200 })
    const sent = newPath()
    const parts = form(['contentEncoding', 'gzip'], ['', new Blob([bytes], { type: 'text/plain' })])
    expect(await upload(sent, parts)).toMatchObject({ status: 200 })
    const [copied, decoded, cleared] = [newPath(), newPath(), newPath()]
    const copy = (to: string, more: object) =>
      service.post('object/copy', { bucketId: bucket, sourceKey: keyOf(raw), destinationKey: keyOf(to), ...more })
    expect(await copy(copied, {})).toMatchObject({ status: 200 })
    for (const [to, contentEncoding] of [
      [decoded, 'identity'],
      [cleared, ''],
    ] as const) {
      expect(await copy(to, { copyMetadata: false, metadata: { contentEncoding } })).toMatchObject({ status: 200 })
      expect((await service.get(`object/${to}`)).headers.get('content-encoding')).toBeNull()
    }
    for (const path of [raw, sent, copied]) {
      const { headers, body } = await service.get(`object/${path}`)
      expect([path, headers.get('content-encoding'), body]).toEqual([path, 'gzip', 'decoded'])
      expect(await info(path)).toMatchObject({ content_encoding: 'gzip' })
      const { headers: head } = await exchange(`${storage.url}/object/${path}`, {
        method: 'HEAD',
        headers: { authorization: `Bearer ${storage.keys.service}` },
      })
      expect(head).toMatchObject({ 'content-encoding': 'gzip', 'content-length': String(bytes.length) })
    }
    const refused = await upload(newPath(), bytes, { ...plain, 'content-encoding': 'gzip;q=1' })
    expect(refused).toMatchObject({ status: 400, body: { message: expect.stringContaining('Content-Encoding') } })
  })

  it('uses the X-Robots-Tag of its request', async () => {
    const path = newPath()
    expect(await upload(path, form(['', file('x')]), { 'x-robots-tag': 'all' })).toMatchObject({ status: 200 })
    expect((await service.get(`object/${path}`)).headers.get('x-robots-tag')).toBe('all')
  })

  const types = { 'content-type': 'multipart/form-data; boundary=b' }
  const part = (text: string) => `--b\r\ncontent-disposition: form-data; name=""; filename="f"\r\n\r\n${text}`
  it.each<[string, BodyInit | undefined, Headers, string]>([
    ['without a file', form(['cacheControl', '60']), {}, 'No content provided'],
    ['without anything', undefined, types, 'Malformed form'],
    ['with two files', form(['', file('x')], ['', file('y')]), {}, 'Malformed form'],
    [
      'with eleven fields',
      form(...Array.from({ length: 11 }, (_, n): [string, string] => [`${n}`, '']), ['', file('x')]),
      {},
      'Malformed form',
    ],
    ['without a boundary', 'x', { 'content-type': 'multipart/form-data' }, 'Malformed form'],
    ['that is none', 'x', types, 'Malformed form'],
    ['that ends in the middle', part('x'), types, 'Malformed form'],
    ['that ends in the middle of a large file', part('x'.repeat(200_000)), types, 'Malformed form'],
    ['with much text before its file', `${'x'.repeat(400_000)}\r\n${part('x')}\r\n--b--`, types, 'Malformed form'],
    ['with many parts without a head', `${'--ba\r\n'.repeat(60_000)}${part('x')}\r\n--b--`, types, 'Malformed form'],
    ['with many of them behind its file', `${part('x')}${'\r\n--ba'.repeat(60_000)}\r\n--b--`, types, 'Malformed form'],
  ])('%s is refused', async (_, body, headers, message) => {
    const path = newPath()
    const reply = await upload(path, body, headers)
    expect([reply.status, reply.body]).toEqual([400, invalid(expect.stringContaining(message))])
    expect((await info(path)).code).toBe('NoSuchKey')
  })
})

describe('an upload', () => {
  it.each([
    ['raw', () => 'x', {}],
    ['as a form', () => form(['', file('x')]), {}],
  ])('%s does not replace an object unless that is requested', async (_, body, headers) => {
    const path = newPath()
    const { Id } = (await upload(path, body(), headers)).body
    for (const upsert of ['false', '', 'TRUE', '1']) {
      const reply = await upload(path, body(), { 'x-upsert': upsert })
      expect([reply.status, reply.body]).toEqual([400, KEY_TAKEN])
    }
    const replaced = await upload(path, 'new', { 'x-upsert': 'true', ...plain })
    expect([replaced.status, replaced.body]).toEqual([200, { Key: path, Id }])
    expect(await read(path)).toBe('new')
    const put = await upload(path, body(), {}, 'PUT')
    expect([put.status, put.body]).toEqual([200, { Key: path, Id }])
    expect(await read(path)).toBe('x')
  })

  it.each(['POST', 'PUT'])('to a missing bucket is refused: %s', async (method) => {
    for (const body of ['x', form(['', file('x')])]) {
      const reply = await upload(`nowhere/${randomUUID()}`, body, {}, method)
      expect([reply.status, reply.body]).toEqual([400, NO_BUCKET])
    }
  })

  it.each([
    ['dir/sub/ä ö.txt', 'dir/sub/%C3%A4%20%C3%B6.txt'],
    ['日本/🙂', '%E6%97%A5%E6%9C%AC/%F0%9F%99%82'],
    ["!'()*&$=@;:,.-_~", "!'()*&$=@;:,.-_~"],
    ['100%', '100%25'],
    ['%41', '%2541'],
    ['a?b#c', 'a%3Fb%23c'],
    ['a+b', 'a+b'],
    ['a+c', 'a%2Bc'],
    ['a//b', 'a//b'],
    ['dir/', 'dir/'],
    ['dir//', 'dir//'],
    ['[x]{y}|^`"<>', '%5Bx%5D%7By%7D%7C%5E%60%22%3C%3E'],
  ])('to %j is found there by every way to read', async (name, encoded) => {
    const open = await newBucket(storage, { public: true })
    const reply = await upload(`${open}/${encoded}`, name, plain)
    expect([reply.status, reply.body.Key]).toEqual([200, `${open}/${name}`])
    const [one] = (await service.post(`object/sign/${open}`, { expiresIn: 60, paths: [name] })).body
    const { signedURL } = (await service.post(`object/sign/${open}/${encoded}`, { expiresIn: 60 })).body
    for (const path of [
      ...['', 'authenticated/', 'public/'].map((way) => `object/${way}${open}/${encoded}`),
      ...[one.signedURL, signedURL].flatMap((signed: string) => [signed.slice(1), encodeURI(signed.slice(1))]),
    ]) {
      expect(await service.get(path), path).toMatchObject({ status: 200, body: name })
    }
    expect((await info(`${open}/${encoded}`)).name).toBe(name)
    expect((await service.post(`object/list-v2/${open}`, {})).body.objects).toMatchObject([{ name }])
    const copied = await service.post('object/copy', {
      bucketId: open,
      sourceKey: name,
      destinationKey: `copy of ${name}`,
    })
    expect(copied.body).toMatchObject({ Key: `${open}/copy of ${name}` })
    const removed = await service.delete(`object/${open}/${encoded}`)
    expect([removed.status, removed.body]).toEqual([200, { message: 'Successfully deleted' }])
  })

  it.each([
    ['', 'Invalid key: '],
    ['a%5Cb', 'Invalid key: a\\b'],
    ['a%0Ab', 'Invalid key: a\nb'],
    ['a%zz', 'Invalid key: a%zz'],
    ['x'.repeat(1025), expect.stringContaining('Invalid key: xxx')],
  ])('to %j is refused', async (encoded, message) => {
    const reply = await upload(`${bucket}/${encoded}`, 'x', plain)
    expect([reply.status, reply.body]).toEqual([400, refusal(400, 'InvalidKey', 'InvalidKey', message)])
  })
})

describe('the types of a bucket', () => {
  it.each([
    ['image/png', ['image/png'], true],
    ['IMAGE/PNG', ['image/png'], true],
    ['image/png', ['image/*'], true],
    ['text/plain;charset=UTF-8', ['text/plain'], true],
    ['text/plain', ['text/plain; charset=utf-8'], true],
    ['anything/x', ['*/*'], true],
    ['anything/x', ['*'], true],
    ['application/vnd.ms-excel', ['Application/vnd.*'], true],
    ['application/pdf', ['application/vnd.*'], false],
    ['image/png', ['image/jpeg', 'text/*'], false],
    ['imagex/png', ['image/*'], false],
    ['image', ['image/*'], false],
    ['application/octet-stream', ['image/*'], false],
    ['image/png;a="b, \\" c"', ['image/png'], true],
    ['image/png;a=b, text/javascript', ['image/png'], false],
    ['image/png;a="b", text/javascript', ['image/*'], false],
  ])('%s among %j: %s', async (type, types, taken) => {
    const name = await newBucket(storage, { allowed_mime_types: types })
    const replies = [
      await upload(`${name}/raw`, 'x', { 'content-type': type }),
      await upload(`${name}/form`, form(['contentType', type], ['', file('x')])),
      await upload(`${name}/behind`, form(['', file('x', types[0])], ['contentType', type])),
    ]
    const message = `mime type ${type} is not supported`
    const refused = [400, refusal(415, 'invalid_mime_type', 'InvalidMimeType', message)]
    for (const { status, body } of replies) {
      expect([status, body]).toEqual(taken ? [200, { Key: expect.anything(), Id: UUID }] : refused)
    }
    expect((await service.post(`object/list/${name}`, { prefix: '' })).body).toHaveLength(taken ? 3 : 0)
  })

  it('does not apply to the marker of an empty folder, which has no bytes', async () => {
    const name = await newBucket(storage, { allowed_mime_types: ['image/*'], file_size_limit: 5 })
    expect(await upload(`${name}/dir/.emptyFolderPlaceholder`, undefined, plain)).toMatchObject({ status: 200 })
    for (const body of ['x', form(['', file('x', 'image/png')])]) {
      const reply = await upload(`${name}/dir2/.emptyFolderPlaceholder`, body)
      expect([reply.status, reply.body]).toEqual([400, TOO_LARGE])
    }
  })
})

describe('the size limit', () => {
  const chunks = (size: number) => Array.from({ length: size / 10 }, () => 'x'.repeat(10))
  /** Sends so many bytes in each way. */
  function sent(path: string, size: number, at: Date) {
    const url = `${storage.url}/object/${path}`
    const clock = { 'x-test-clock': String(at.getTime()) }
    const raw = { method: 'POST', body: chunks(size) }
    const headers = { authorization: `Bearer ${storage.keys.service}`, ...clock }
    return Promise.all([
      exchange(`${url}-raw`, { ...raw, headers: { ...headers, 'content-length': String(size) } }),
      exchange(`${url}-chunked`, { ...raw, headers }),
      upload(`${path}-form`, form(['', file('x'.repeat(size))]), clock),
      upload(`${path}-put`, 'x'.repeat(size), { ...plain, ...clock }, 'PUT'),
    ])
  }
  const bodyOf = ({ body }: { body: unknown }) => (typeof body === 'string' ? JSON.parse(body) : body)

  async function expectLimit(name: string, bytes: number, at = new Date()) {
    for (const reply of await sent(`${name}/fits`, bytes, at)) expect(reply.status, bodyOf(reply).message).toBe(200)
    for (const reply of await sent(`${name}/large`, bytes + 10, at)) {
      expect([reply.status, bodyOf(reply)]).toEqual([400, TOO_LARGE])
    }
    expect((await service.post(`object/list/${name}`, { prefix: '', search: 'large' })).body).toEqual([])
  }

  it.each([0, 1000])('of a bucket applies to every way to send bytes: %d', async (bytes) => {
    await expectLimit(await newBucket(storage, { file_size_limit: bytes }), bytes)
  })

  it('of a bucket applies as soon as it is changed', async () => {
    const name = await newBucket(storage, { file_size_limit: 10 })
    expect((await upload(`${name}/a`, 'x'.repeat(20), plain)).body).toEqual(TOO_LARGE)
    await service.put(`bucket/${name}`, { file_size_limit: 20 })
    expect(await upload(`${name}/a`, 'x'.repeat(20), plain)).toMatchObject({ status: 200 })
  })

  it('of the installation applies before the bytes arrive', async () => {
    const wide = await newStorage(storage.organization)
    const path = `/v1/projects/${wide.ref}/config/storage`
    expect(await wide.organization.owner.patch(path, { fileSizeLimit: 500 * 1024 ** 3 })).toMatchObject({ status: 200 })
    const reply = await exchange(`${wide.url}/object/${await newBucket(wide)}/large`, {
      ...{ method: 'POST', body: 'x', unfinished: true },
      headers: {
        authorization: `Bearer ${wide.keys.service}`,
        'content-length': String(156.25 * 1024 ** 3 + 1),
        'x-test-clock': String(Date.now() + 11_000),
      },
    })
    const message = 'The object exceeded the maximum allowed size: an object can have at most 167772160000 bytes'
    expect([reply.status, JSON.parse(reply.body)]).toEqual([400, { ...TOO_LARGE, message }])
  })

  it('of the project applies to every bucket, within seconds', async () => {
    const name = await newBucket(storage, { file_size_limit: 100 })
    const path = `/v1/projects/${storage.ref}/config/storage`
    expect(await storage.organization.owner.patch(path, { fileSizeLimit: 50 })).toMatchObject({ status: 200 })
    // The limit may be cached for this time.
    const later = new Date(Date.now() + 11_000)
    await expectLimit(name, 50, later)
    const reply = await service.at(later).post('bucket', { name: randomUUID(), file_size_limit: 51 })
    expect([reply.status, reply.body]).toEqual([400, TOO_LARGE])
  })
})

describe('a signed upload', () => {
  const sign = (path: string, headers?: Headers) => service.send('POST', `object/upload/sign/${path}`, { headers })
  const put = (url: string, raw: BodyInit | undefined, headers: Headers = plain) =>
    anyone.send('PUT', url.slice(1), { raw, headers })

  it.each([
    ['raw', () => 'x'],
    ['as a form', () => form(['', file('x', 'text/plain')])],
  ])('needs only its token: %s', async (_, body) => {
    const path = newPath(`${randomUUID()}/ö ?.txt`)
    const encoded = path.replace('?', '%3F')
    const signed = await sign(encoded)
    const url = expect.stringMatching(/^\/object\/upload\/sign\/.*\?token=/)
    expect([signed.status, signed.body]).toEqual([
      200,
      { url, token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/) },
    ])
    const claims = JSON.parse(Buffer.from(signed.body.token.split('.')[1], 'base64url').toString())
    expect(claims).toMatchObject({ url: expect.stringContaining(bucket), scope: 'upload', upsert: false })
    expect(claims.exp - claims.iat).toBe(7200)
    const headers = typeof body() === 'string' ? plain : {}
    const reply = await put(signed.body.url, body(), headers)
    expect([reply.status, reply.body]).toEqual([200, { Key: path }])
    expect(await read(encoded)).toBe('x')
    expect((await put(signed.body.url, body(), headers)).body).toEqual(KEY_TAKEN)
  })

  it('replaces an object if its token says so, whatever the header says, and once', async () => {
    const path = newPath()
    await upload(path, 'one', plain)
    expect((await sign(path)).body).toEqual(KEY_TAKEN)
    const { url } = (await sign(path, { 'x-upsert': 'true' })).body
    expect(await put(url, 'two', { ...plain, 'x-upsert': 'false' })).toMatchObject({ status: 200 })
    const again = await put(url, 'three')
    expect([again.status, again.body]).toEqual([400, refusal(400, 'InvalidSignature', 'InvalidSignature')])
    expect(await read(path)).toBe('two')
    const other = newPath()
    const strict = (await sign(other)).body.url
    await upload(other, 'one', plain)
    expect((await put(strict, 'two', { ...plain, 'x-upsert': 'true' })).body).toEqual(KEY_TAKEN)
  })

  it('is checked by the policies with its metadata', async () => {
    const name = `meta_${randomUUID().replaceAll('-', '')}`
    const query = `create policy ${name} on storage.objects for insert to anon
      with check (bucket_id = '${bucket}' and user_metadata->>'kind' = 'photo')`
    expect(await runSql(storage.organization.owner, storage.ref, query)).toMatchObject({ status: 201 })
    const anon = apiOf(storage, storage.keys.anon)
    const asked = (kind: string) =>
      anon.send('POST', `object/upload/sign/${newPath()}`, {
        headers: { 'x-metadata': btoa(JSON.stringify({ kind })) },
      })
    expect((await asked('film')).body).toMatchObject({ code: 'AccessDenied' })
    expect(await asked('photo')).toMatchObject({ status: 200 })
  })

  it('follows the rules of the bucket', async () => {
    const name = await newBucket(storage, { file_size_limit: 2, allowed_mime_types: ['text/plain'] })
    const { url } = (await sign(`${name}/a`)).body
    expect((await put(url, 'xyz')).body).toEqual(TOO_LARGE)
    expect((await put(url, 'x', { 'content-type': 'a/b' })).body.code).toBe('InvalidMimeType')
    expect(await put(url, 'xy')).toMatchObject({ status: 200 })
  })

  it('is refused without a bucket, and without a token for it', async () => {
    const missing = await sign('nowhere/a')
    const message = 'The related resource does not exist'
    expect([missing.status, missing.body]).toEqual([400, refusal(404, 'InvalidRequest', 'InvalidRequest', message)])
    const path = newPath()
    const { url, token } = (await sign(path)).body
    const download = (
      await service.post(`object/sign/${(await upload(newPath(), 'x', plain)).body.Key}`, { expiresIn: 9 })
    ).body
    for (const [target, expected] of [
      [`/object/upload/sign/${path}`, invalid("querystring must have required property 'token'")],
      [`/object/upload/sign/${path}?token=x`, refusal(400, 'InvalidJWT', 'InvalidJWT', 'Invalid Compact JWS')],
      [
        `/object/upload/sign/${path}x?token=${token}`,
        refusal(400, 'InvalidSignature', 'InvalidSignature', 'Invalid signature'),
      ],
      [
        `/object/upload/sign/${path}?${download.signedURL.split('?')[1]}`,
        refusal(400, 'InvalidSignature', 'InvalidSignature', 'Token is not scoped for upload'),
      ],
    ] as const) {
      const reply = await put(target, 'x')
      expect([reply.status, reply.body]).toEqual([400, expected])
    }
    const late = await anyone
      .at(new Date(Date.now() + 7_201_000))
      .send('PUT', url.slice(1), { raw: 'x', headers: plain })
    expect(late.body).toEqual(refusal(400, 'InvalidJWT', 'InvalidJWT', '"exp" claim timestamp check failed'))
  })
})

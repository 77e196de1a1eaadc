import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, codeOf, expectNoStrayBytes, openSql, type Sql } from '../../support/storage-http.ts'

let storage: TestStorage
let service: ReturnType<typeof calling>
let sql: Sql
let close: () => Promise<void>
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  service = calling(storage, storage.keys.service)
  const database = await openSql(storage)
  sql = database.sql
  close = database.close
  bucket = await newBucket(storage)
})
afterAll(() => close())

interface Sent {
  headers?: Record<string, string>
  body?: string | Uint8Array
}

/** Sends the path unchanged; every other client would parse it first. */
async function raw(method: string, path: string, { headers = {}, body }: Sent = {}) {
  const { hostname, port, pathname } = new URL(storage.url)
  const authorization = `Bearer ${storage.keys.service}`
  const sent = request({ method, hostname, port, path: pathname + path, headers: { authorization, ...headers } })
  sent.end(/^P/.test(method) ? body : undefined)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  const reply = await text(response)
  const isJson = response.headers['content-type']?.includes('json')
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: isJson ? JSON.parse(reply) : reply,
    code: response.statusCode === 200 ? 200 : isJson ? JSON.parse(reply).code : response.statusCode,
  }
}

const rows = async () =>
  (await sql('select name from storage.objects where bucket_id = $1', [bucket])).map((r) => r.name)

describe('a path', () => {
  it.each([
    '..%2fx',
    '.%2fx',
    'a%2f..%2fx',
    'a/%2e%2e%2fx',
    'a/%2E%2e%2Fx',
    'a%2f.',
    'a%2f..',
    '%5c..%5cx',
    'a%5cb',
    'a%00b',
    '%00',
    'a%0d%0aset-cookie:%20x',
    'a%09b',
    'a%7fb',
    '%c0%ae%c0%ae%2fx',
    '%e0%80%af',
    '%ff',
    '%ed%a0%80',
    '%2',
    '%zz',
    'a%e2%80%aeb',
    'a%ef%bf%bf',
    '%ef%bf%be',
    `${'x'.repeat(1025)}`,
    `${'%c3%bc'.repeat(512)}x`,
  ])('is refused if it is ambiguous: %s', async (path) => {
    const before = await rows()
    for (const [method, place] of [
      ['POST', `/object/${bucket}/${path}`],
      ['GET', `/object/authenticated/${bucket}/${path}`],
      ['GET', `/object/info/${bucket}/${path}`],
      ['DELETE', `/object/${bucket}/${path}`],
      ['GET', `/object/sign/${bucket}/${path}?token=x`],
    ] as const) {
      expect({ method, place, code: (await raw(method, place, { body: '{}' })).code }).toEqual({
        method,
        place,
        code: 'InvalidKey',
      })
    }
    expect(await rows()).toEqual(before)
  })

  it.each([
    ['a%2fb', 'a/b'],
    ['a%2Fc/d', 'a/c/d'],
    ['a//b', 'a//b'],
    ['/x', '/x'],
    ['x/', 'x/'],
    ['a;b', 'a;b'],
    ['..;/x', '..;/x'],
    ['...', '...'],
    ['.hidden', '.hidden'],
    ['%252e%252e%252fx', '%2e%2e%2fx'],
    ['%2500', '%00'],
    ['a%20+b', 'a +b'],
    ['%C3%BC/%F0%9F%98%80', 'ü/😀'],
    ['e%CC%81', 'e\u0301'],
    ['%22%3Cscript%3E%22', '"<script>"'],
    ['a%3Fb%23c', 'a?b#c'],
    [encodeURIComponent(`!"#$%&'()*+,-.:;<=>?@[]^_\`{|}~ 0Aa`), `!"#$%&'()*+,-.:;<=>?@[]^_\`{|}~ 0Aa`],
    ['x'.repeat(1024), 'x'.repeat(1024)],
    ['%c3%bc'.repeat(512), 'ü'.repeat(512)],
  ])('is the same name everywhere: %s', async (path, name) => {
    const body = randomUUID()
    expect((await raw('POST', `/object/${bucket}/${path}`, { body })).body).toMatchObject({ Key: `${bucket}/${name}` })
    expect(await rows()).toContain(name)
    expect((await raw('GET', `/object/authenticated/${bucket}/${path}`)).body).toBe(body)
    expect((await raw('GET', `/object/info/${bucket}/${path}`)).body).toMatchObject({ name })
    const json = { 'content-type': 'application/json' }
    const one = await raw('POST', `/object/sign/${bucket}/${path}`, { headers: json, body: '{"expiresIn":60}' })
    const many = await service(`POST /object/sign/${bucket}`, { body: { expiresIn: 60, paths: [name] } })
    for (const { signedURL } of [one.body, many.body[0]]) {
      // Clients encode the address like this.
      expect((await raw('GET', encodeURI(signedURL))).body).toBe(body)
    }
    const upload = await raw('POST', `/object/upload/sign/${bucket}/${path}`, { headers: { 'x-upsert': 'true' } })
    expect((await raw('PUT', encodeURI(upload.body.url), { body: 'again' })).body).toEqual({ Key: `${bucket}/${name}` })
    const other = `moved-${randomUUID()}`
    const moving = { bucketId: bucket, sourceKey: name, destinationKey: other }
    expect(codeOf(await service('POST /object/copy', { body: { ...moving, destinationKey: `${other}-copy` } }))).toBe(
      200,
    )
    expect(codeOf(await service('POST /object/move', { body: moving }))).toBe(200)
    expect(
      codeOf(await service('POST /object/move', { body: { ...moving, sourceKey: other, destinationKey: name } })),
    ).toBe(200)
    expect((await raw('GET', `/object/authenticated/${bucket}/${path}`)).body).toBe('again')
    const { body: removed } = await service(`DELETE /object/${bucket}`, { body: { prefixes: [name] } })
    expect(removed).toMatchObject([{ name }])
  })

  it.each(['%2e%2e/x', '../x', '%2E%2e/../x', '..\\x', '%2e%2e', './../..'])(
    'is resolved as the URL standard says, and reaches nothing below the bucket: %s',
    async (path) => {
      const before = await sql('select bucket_id, name from storage.objects')
      const { status } = await raw('POST', `/object/${bucket}/${path}`, { body: 'x' })
      expect([400, 404]).toContain(status)
      expect(await sql('select bucket_id, name from storage.objects')).toEqual(before)
    },
  )

  it.each([
    '..',
    '%2e%2e',
    'a%2fb',
    '%00',
    'a%0ab',
    ' a',
    'a ',
    '%ff',
    'ü',
    'x'.repeat(101),
    'a--table-s3',
    'a%5cb',
    'a"b',
  ])('has no bucket named %s', async (name) => {
    const decoded = name.includes('%') && name !== '%ff' ? decodeURIComponent(name) : name
    expect((await service('POST /bucket', { body: { name: decoded } })).status).toBe(400)
    for (const [method, path] of [
      ['GET', `/bucket/${encodeURI(name).replaceAll('%25', '%')}`],
      ['POST', `/object/${encodeURI(name).replaceAll('%25', '%')}/x`],
    ] as const) {
      expect([400, 404]).toContain((await raw(method, path, { body: 'x' })).status)
    }
  })
})

describe('a bucket with the name of an operation', () => {
  it.each(['list', 'list-v2', 'sign', 'copy', 'move', 'public', 'authenticated', 'info', 'upload', 'empty'])(
    'does not affect the operation, nor the operation it: %s',
    async (name) => {
      expect(codeOf(await service('POST /bucket', { body: { name } }))).toBe(200)
      expect(codeOf(await service(`GET /bucket/${name}`))).toBe(200)
      for (const method of ['POST', 'GET', 'PUT', 'DELETE']) {
        for (const path of [name, `${name}/a`, `${name}/a/b`, `info/${name}/a`, `public/${name}/a`, `sign/${name}/a`]) {
          const body = method === 'GET' ? undefined : {}
          expect((await service(`${method} /object/${path}`, { body })).status).toBeLessThan(500)
        }
      }
      await service(`POST /bucket/${name}/empty`)
      const encoded = `%${name.charCodeAt(0).toString(16)}${name.slice(1)}`
      expect((await raw('POST', `/object/${encoded}/a.txt`, { body: name })).code).toBe(200)
      expect((await raw('GET', `/object/authenticated/${name}/a.txt`)).body).toBe(name)
      expect((await raw('GET', `/object/public/${name}/a.txt`)).code).toBe('NoSuchBucket')
      await service(`POST /bucket/${name}/empty`)
      expect(codeOf(await service(`DELETE /bucket/${name}`))).toBe(200)
    },
  )
})

describe('text that Postgres cannot store', () => {
  it.each(['a\0b', '\ud800', 'a\udfffb'])('is refused in every place: %j', async (bad) => {
    const moving = { bucketId: bucket, sourceKey: 'a', destinationKey: 'b' }
    const encoded = Buffer.from(JSON.stringify({ bad })).toString('base64')
    const attempts: [string, unknown, Record<string, string>?][] = [
      ['POST /bucket', { name: bad }],
      ['POST /bucket', { name: 'fine', id: bad }],
      ['POST /bucket', { name: `b-${randomUUID()}`, allowed_mime_types: [bad] }],
      ['POST /bucket', { name: `b-${randomUUID()}`, file_size_limit: bad }],
      [`PUT /bucket/${bucket}`, { allowed_mime_types: [bad] }],
      ...['bucketId', 'sourceKey', 'destinationKey', 'destinationBucket'].flatMap((field): [string, unknown][] => [
        ['POST /object/move', { ...moving, [field]: bad }],
        ['POST /object/copy', { ...moving, [field]: bad }],
      ]),
      [`POST /object/list/${bucket}`, { prefix: bad }],
      [`POST /object/list/${bucket}`, { prefix: '', search: bad }],
      [`POST /object/list-v2/${bucket}`, { prefix: bad }],
      [`POST /object/list-v2/${bucket}`, { cursor: bad }],
      [`POST /object/list-v2/${bucket}`, { cursor: Buffer.from(`l:${bad}\no:asc\nc:name`).toString('base64') }],
      [`POST /object/sign/${bucket}`, { expiresIn: 9, paths: [bad] }],
      [`DELETE /object/${bucket}`, { prefixes: [bad] }],
      [`GET /bucket?search=${encodeURIComponent(bad.toWellFormed())}`, undefined],
      [`POST /object/${bucket}/${randomUUID()}`, 'x', { 'x-metadata': encoded }],
      [`PUT /object/${bucket}/${randomUUID()}`, 'x', { 'x-metadata': encoded }],
    ]
    for (const [request, body, headers = {}] of attempts) {
      const { status } = await service(request, { body, headers })
      expect({ request, status: [200, 400].includes(status) ? 'fine' : status }).toEqual({ request, status: 'fine' })
    }
    const deep = `{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}`
    const form = `--x\r\ncontent-disposition: form-data; name="metadata"\r\n\r\n${deep}\r\n--x\r\ncontent-disposition: form-data; name=""; filename="a"\r\n\r\nx\r\n--x--\r\n`
    const headers = { 'content-type': 'multipart/form-data; boundary=x' }
    expect((await service(`POST /object/${bucket}/${randomUUID()}`, { body: form, headers })).status).toBeLessThan(500)
    expect((await service(`POST /object/list/${bucket}`, { body: deep })).status).toBe(400)
    await expectNoStrayBytes(storage, sql)
  })
})

describe('a stored page', () => {
  it.each([
    ['text/html', '<script>1</script>', 'text/plain'],
    ['TEXT/HTML; charset=utf-8', '<script>1</script>', 'text/plain'],
    ['text/plain, text/html', '<script>1</script>', 'text/plain'],
    ['application/xhtml+xml', '<html/>', 'sandbox'],
    ['image/svg+xml', '<svg onload="1"/>', 'sandbox'],
    ['text/xml', '<x/>', 'sandbox'],
    ['multipart/x-mixed-replace; boundary=x', '--x', 'sandbox'],
    ['message/rfc822', 'x', 'sandbox'],
    ['text/xsl', '<x/>', 'sandbox'],
    ['text/rdf', '<x/>', 'sandbox'],
    ['*/*', '<script>1</script>', 'sandbox'],
    ['application/octet-stream', '<script>1</script>', 'sandbox'],
    ['application/pdf, text/xsl', '<x/>', 'sandbox'],
    ['image/png;x=1, text/xsl', '<x/>', 'sandbox'],
    ['image/svg;x=1', '<svg onload="1"/>', 'sandbox'],
    ['image/png', 'x', 'image/png'],
    ['Video/mp4; codecs="avc1.4d002a"', 'x', 'Video/mp4; codecs="avc1.4d002a"'],
    ['application/pdf', '%PDF-', 'application/pdf'],
  ])('of type %s does not run', async (type, body, expected) => {
    const open = await newBucket(storage, { public: true })
    for (const name of [bucket, open]) {
      const key = randomUUID()
      await raw('POST', `/object/${name}/${key}`, { body, headers: { 'content-type': type } })
      const places = [
        `/object/authenticated/${name}/${key}`,
        ...(name === open ? [`/object/public/${name}/${key}`] : []),
      ]
      const { signedURL } = (await service(`POST /object/sign/${name}/${key}`, { body: { expiresIn: 9 } })).body
      for (const path of [...places, signedURL]) {
        const { headers, body: served } = await raw('GET', path)
        expect(served).toBe(body)
        expect(headers['x-content-type-options']).toBe('nosniff')
        const policy = headers['content-security-policy']
        if (expected === 'sandbox') expect(policy).toMatch(/default-src 'none'.*sandbox$/)
        else expect(headers['content-type']).toBe(expected)
        if (expected === type) expect(policy).toBeUndefined()
      }
    }
  })
})

describe('the description of an object by its client', () => {
  const part = (head: string, value: string) => `--x\r\ncontent-disposition: form-data; ${head}\r\n\r\n${value}\r\n`
  const field = (name: string, value: string) => part(`name="${name}"`, value)
  const file = part(`name=""; filename="a\r\nx-evil: 1"\r\nx-evil: 1\r\ncontent-type: text/plain`, 'bytes')
  const plain = `--x\r\ncontent-disposition: form-data; name=""; filename="../../a\\"b"\r\ncontent-type: text/plain\r\n\r\nbytes\r\n`
  const evil = 'a/b\r\nx-evil: 1\r\n\r\n<script>'

  it.each([
    ['a line in the type', field('contentType', evil) + plain],
    ['a line in the type, behind the file', plain + field('contentType', evil)],
    ['a line in the cache control', field('cacheControl', evil) + plain],
    ['a line in the cache control, behind the file', plain + field('cacheControl', evil)],
    ['a line in the name of the file', file],
    ['NUL in the type', field('contentType', 'a/b\0') + plain],
    ['unicode in the type', field('contentType', 'ä/☃') + plain],
    ['metadata that is none', field('metadata', '{"a":') + plain],
    ['metadata with lines', field('metadata', JSON.stringify({ a: evil })) + plain],
    ['metadata with the names of others', field('metadata', '{"__proto__":{"x":1},"constructor":1}') + plain],
    ['a form cut off in the file', plain.slice(0, -4)],
    ['two files', plain + plain],
    ['many fields', field('a', 'x').repeat(12) + plain],
    ['a long field', field('metadata', `"${'x'.repeat(1024 ** 2)}"`) + plain],
  ])('never becomes a header of another one: %s', async (_, form) => {
    const key = randomUUID()
    const complete = form.endsWith('\r\n') ? `${form}--x--\r\n` : form
    const headers = { 'content-type': 'multipart/form-data; boundary=x' }
    const { status } = await raw('POST', `/object/${bucket}/${key}`, { body: complete, headers })
    expect([200, 400]).toContain(status)
    const served = await raw('GET', `/object/authenticated/${bucket}/${key}`)
    expect(served.status).toBe(status)
    expect(served.headers['x-evil']).toBeUndefined()
    if (status === 200) expect(served.body).toBe('bytes')
    await expectNoStrayBytes(storage, sql)
  })

  it.each([
    ['content-type', 'a/b\xe4'],
    ['content-type', 'x'.repeat(2_000)],
    ['cache-control', 'no\xe4'],
    ['x-robots-tag', 'none\xe4'],
    ['x-metadata', '!!!'],
    ['x-metadata', Buffer.from('"text"').toString('base64')],
    ['x-metadata', Buffer.from([0xff, 0xfe]).toString('base64')],
    ['content-type', 'multipart/form-data'],
    ['content-type', 'multipart/form-data; boundary='],
    ['content-type', `multipart/form-data; boundary=${'x'.repeat(5_000)}`],
  ])('in the header %s is stored unchanged or refused: %s', async (name, value) => {
    const key = randomUUID()
    const { status } = await raw('POST', `/object/${bucket}/${key}`, { body: 'x', headers: { [name]: value } })
    expect([200, 400]).toContain(status)
    expect((await raw('GET', `/object/authenticated/${bucket}/${key}`)).status).toBe(status)
  })

  it.each(['a\r\nx-evil: 1', '"; filename=evil.exe', "a'b(c)*", 'ü☃', '\u0000', '../../etc/passwd', 'x'.repeat(3_000)])(
    'is only the name of a download: %j',
    async (name) => {
      const key = randomUUID()
      await raw('POST', `/object/${bucket}/${key}`, { body: 'x' })
      const { status, headers } = await raw(
        'GET',
        `/object/authenticated/${bucket}/${key}?download=${encodeURIComponent(name)}`,
      )
      expect(status).toBe(200)
      expect(headers['x-evil']).toBeUndefined()
      expect(headers['content-disposition']).toMatch(/^attachment; filename=[\w%.~!-]+; filename\*=UTF-8''[\w%.~!-]+$/)
    },
  )
})

import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { signClaims } from '../../../src/services/gateway/credentials.ts'
import { baseUrl, type Caller } from '../../support/api.ts'
import { newProject } from '../../support/projects.ts'
import {
  apiOf,
  exchange,
  invalid,
  NO_BUCKET,
  newBucket,
  newStorage,
  refusal,
  type TestStorage,
} from '../../support/storage.ts'
import { openSql } from '../../support/storage-http.ts'

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const TAKEN = refusal(409, 'Duplicate', 'BucketAlreadyExists', 'The resource already exists')
const NO_CREDENTIAL = invalid("headers must have required property 'authorization'")

let storage: TestStorage
let service: Caller
let anon: Caller
let anyone: Caller
beforeAll(async () => {
  storage = await newStorage()
  service = apiOf(storage, storage.keys.service)
  anon = apiOf(storage, storage.keys.anon)
  anyone = apiOf(storage)
})

const seen = async (id: string) => (await service.get(`bucket/${encodeURIComponent(id)}`)).body

describe('POST /bucket', () => {
  it('creates a bucket from its body, and uses defaults for the rest', async () => {
    const name = `plain-${randomUUID()}`
    const reply = await service.post('bucket', { name, unknown: 'field' })
    expect([reply.status, reply.body]).toEqual([200, { name }])
    expect(await seen(name)).toEqual({
      ...{ id: name, name, owner: '', public: false, file_size_limit: null, allowed_mime_types: null },
      ...{ created_at: TIME, updated_at: TIME },
    })
    const other = randomUUID()
    const fields = { public: true, file_size_limit: 5, allowed_mime_types: ['a/b', '', 'c/*'] }
    const named = await service.post('bucket/', { id: `${other}-id`, name: `${other}-name`, ...fields })
    expect([named.status, named.body]).toEqual([200, { name: `${other}-name` }])
    expect(await seen(`${other}-id`)).toMatchObject({
      ...{ id: `${other}-id`, name: `${other}-name`, ...fields, allowed_mime_types: ['a/b', 'c/*'] },
    })
  })

  it.each([
    ['a', 1],
    ['x'.repeat(36 + 64), 1],
    ["UPPER_!.*'() &$=@;:+,?-", 1],
    [' leads', 0],
    ['trails ', 0],
    ['', 0],
    ['x'.repeat(101), 0],
    ['a/b', 0],
    ['a%b', 0],
    ['ä', 0],
    ['a#b', 0],
    ['ends--table-s3', 0],
  ])('accepts %j as a name: %d', async (name, taken) => {
    const reply = await service.post('bucket', { name })
    if (taken) expect((await seen(name)).name).toBe(name)
    else expect(reply.body).toEqual(refusal(400, 'Invalid Input', 'InvalidBucketName', 'Bucket name invalid'))
    expect(reply.status).toBe(taken ? 200 : 400)
  })

  it.each([
    [0, 0],
    [1000, 1000],
    [null, null],
    ['10b', 10],
    ['1KB', 1000],
    ['1.5mb', 1_500_000],
    ['0.05GB', 50_000_000],
  ])('reads the size limit %j as %j bytes', async (size, bytes) => {
    expect((await seen(await newBucket(storage, { file_size_limit: size }))).file_size_limit).toBe(bytes)
  })

  it.each([[['image/*', 'text/plain; charset=utf-8', '*/*', '*']], [['application/vnd.a-b+c.d']]])(
    'accepts %j as types',
    async (types) => {
      expect((await seen(await newBucket(storage, { allowed_mime_types: types }))).allowed_mime_types).toEqual(types)
    },
  )

  it.each([[null], [[]], [['']]])('accepts every type if they are %j', async (types) => {
    expect((await seen(await newBucket(storage, { allowed_mime_types: types }))).allowed_mime_types).toBeNull()
  })

  const type = (name: string) =>
    refusal(415, 'invalid_mime_type', 'InvalidMimeType', `mime type ${name} is not supported`)
  const field = (name: string) => invalid(expect.stringContaining(name))
  it.each([
    [{}, invalid("body must have required property 'name'")],
    [{ name: 7 }, invalid('body/name must be string')],
    [{ name: 'x', public: 'yes' }, invalid('body/public must be boolean')],
    [{ name: 'x', type: 'OTHER' }, field('body/type')],
    [{ name: 'x', type: 'ANALYTICS' }, field('body/type')],
    [{ name: 'x', file_size_limit: -1 }, field('body/file_size_limit')],
    [{ name: 'x', file_size_limit: 1.5 }, field('body/file_size_limit')],
    [{ name: 'x', file_size_limit: '5 apples' }, field('body/file_size_limit')],
    [{ name: 'x', file_size_limit: '-5MB' }, field('body/file_size_limit')],
    [{ name: 'x', file_size_limit: '1GB' }, refusal(413, 'Payload too large', 'EntityTooLarge')],
    [{ name: 'x', allowed_mime_types: { a: 'image/png' } }, field('body/allowed_mime_types')],
    [{ name: 'x', allowed_mime_types: ['image/png', 7] }, field('body/allowed_mime_types/1')],
    [{ name: 'x', allowed_mime_types: ['image'] }, type('image')],
    [{ name: 'x', allowed_mime_types: [`a/${'b'.repeat(1000)}`] }, type(`a/${'b'.repeat(1000)}`)],
    [[], invalid('body must be object')],
  ])('refuses %j', async (body, expected) => {
    const reply = await service.post('bucket', body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })

  it('refuses many invalid fields with a short error', async () => {
    const many = await service.post('bucket', { name: 'x', allowed_mime_types: Array(1001).fill(7) })
    const message = 'body/allowed_mime_types must NOT have more than 1000 items'
    expect([many.status, many.body]).toEqual([400, invalid(message)])
    const fewer = await service.post('bucket', { name: 'x', allowed_mime_types: Array(1000).fill(7) })
    expect(fewer.body.message.split(', ')).toHaveLength(500)
  })

  it('accepts null for an omitted field, as some clients send it', async () => {
    const name = randomUUID()
    const limits = { file_size_limit: null, allowed_mime_types: null }
    const reply = await service.post('bucket', { name, id: null, public: null, type: null, ...limits })
    expect([reply.status, reply.body]).toEqual([200, { name }])
    await service.put(`bucket/${name}`, { public: null, file_size_limit: 5 })
    expect(await seen(name)).toMatchObject({ id: name, public: false, file_size_limit: 5 })
  })

  it('accepts text for a boolean, and one type instead of a list', async () => {
    const name = randomUUID()
    const fields = { public: 'true', allowed_mime_types: 'image/png' }
    expect((await service.post('bucket', { name, ...fields })).status).toBe(200)
    expect(await seen(name)).toMatchObject({ public: true, allowed_mime_types: ['image/png'] })
    expect((await service.put(`bucket/${name}`, { public: 'false' })).status).toBe(200)
    expect(await seen(name)).toMatchObject({ public: false })
  })

  it.each(['{', 'name=x', '"'])('refuses the body %j, which is not JSON', async (raw) => {
    const reply = await service.send('POST', 'bucket', { raw, headers: { 'content-type': 'application/json' } })
    expect([reply.status, reply.body]).toEqual([400, invalid(expect.stringContaining('JSON'))])
  })

  it('refuses an id and a name in use', async () => {
    const name = await newBucket(storage)
    for (const body of [{ name }, { name, id: `${name}-2` }, { name: `${name}-2`, id: name }]) {
      const reply = await service.post('bucket', body)
      expect([reply.status, reply.body]).toEqual([400, TAKEN])
    }
  })

  it('refuses callers without a policy', async () => {
    const reply = await anon.post('bucket', { name: randomUUID() })
    const message = 'new row violates row-level security policy'
    expect([reply.status, reply.body]).toEqual([400, refusal(403, 'Unauthorized', 'AccessDenied', message)])
  })
})

describe('GET /bucket', () => {
  it('returns the fields of the specification and no others', async () => {
    const name = await newBucket(storage, { public: true })
    const bucket = {
      ...{ id: name, name, owner: '', public: true, file_size_limit: null, allowed_mime_types: null },
      ...{ created_at: TIME, updated_at: TIME },
    }
    for (const path of ['bucket', 'bucket/']) {
      const reply = await service.get(`${path}?search=${name}`)
      expect([reply.status, reply.body]).toEqual([200, [bucket]])
    }
    for (const path of [`bucket/${name}`, `bucket/${name}/`]) {
      const reply = await service.get(path)
      expect([reply.status, reply.body]).toEqual([200, bucket])
    }
  })

  it('searches for literal text, not a pattern', async () => {
    const mark = randomUUID()
    const name = `${mark}-a_b`
    for (const each of [name, `${mark}-axb`]) await service.post('bucket', { name: each })
    const found = async (search: string) =>
      (await service.get(`bucket?search=${encodeURIComponent(search)}`)).body.map(
        (bucket: { name: string }) => bucket.name,
      )
    expect(await found(`${mark}-A_`)).toEqual([name])
    expect(await found(`${mark}%`)).toEqual([])
  })

  it.each([
    ['limit=0', 'querystring/limit must be >= 1'],
    ['limit=x', 'querystring/limit'],
    ['offset=-1', 'querystring/offset'],
    ['sortColumn=public', 'querystring/sortColumn'],
    ['sortOrder=up', 'querystring/sortOrder'],
  ])('refuses %s and names the field', async (query, field) => {
    const reply = await service.get(`bucket?${query}`)
    expect([reply.status, reply.body]).toEqual([400, invalid(expect.stringContaining(field))])
  })

  it('refuses a list that is larger than a database host returns, and returns its pages', async () => {
    const large = await newStorage(storage.organization)
    const { sql, close } = await openSql(large)
    await sql(
      `insert into storage.buckets (id, name, allowed_mime_types)
         select n, n, array(select 'text/' || repeat('x', 990) from generate_series(1, 1000)) from generate_series(10, 27) as n`,
    )
    await close()
    const buckets = apiOf(large, large.keys.service)
    const reply = await buckets.get('bucket')
    expect([reply.status, reply.body]).toEqual([
      400,
      invalid('The list of buckets is too large for one reply: read it in pages with `limit` and `offset`'),
    ])
    const page = await buckets.get('bucket?limit=2&offset=16')
    expect(page.body.map(({ id }: { id: string }) => id)).toEqual(['26', '27'])
  })

  it('shows nothing to callers without a policy', async () => {
    expect(await anon.get('bucket')).toMatchObject({ status: 200, body: [] })
    const reply = await anon.get(`bucket/${await newBucket(storage)}`)
    expect([reply.status, reply.body]).toEqual([400, NO_BUCKET])
  })
})

describe('PUT /bucket/{id}', () => {
  it('changes the named fields and keeps the rest', async () => {
    const name = await newBucket(storage, { file_size_limit: 10, allowed_mime_types: ['a/b'] })
    const before = await seen(name)
    const ignored = { id: 'other', name: 'other' }
    for (const [body, changed] of [
      [{ public: true, ...ignored }, { public: true }],
      [{ file_size_limit: '1kb' }, { file_size_limit: 1000 }],
      [{ allowed_mime_types: null }, { allowed_mime_types: null }],
      [
        { file_size_limit: null, public: false },
        { file_size_limit: null, public: false },
      ],
    ] as const) {
      const reply = await service.put(`bucket/${name}`, body)
      expect([reply.status, reply.body]).toEqual([200, { message: 'Successfully updated' }])
      Object.assign(before, changed)
      expect(await seen(name)).toEqual(before)
    }
  })

  it.each([
    [{}, invalid(expect.stringContaining('file_size_limit'))],
    [{ name: 'other' }, invalid(expect.stringContaining('file_size_limit'))],
    [{ file_size_limit: 'much' }, invalid(expect.stringContaining('body/file_size_limit'))],
    [{ file_size_limit: '1GB' }, refusal(413, 'Payload too large', 'EntityTooLarge')],
    [{ allowed_mime_types: ['x'] }, refusal(415, 'invalid_mime_type', 'InvalidMimeType')],
  ])('refuses %j', async (body, expected) => {
    const reply = await service.put(`bucket/${await newBucket(storage)}`, body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })
})

describe('a missing bucket', () => {
  it.each([
    ['GET', 'bucket/nowhere', undefined],
    ['PUT', 'bucket/nowhere', { public: true }],
    ['DELETE', 'bucket/nowhere', undefined],
    ['DELETE', 'bucket/nowhere', {}],
    ['POST', 'bucket/nowhere/empty', {}],
    ['POST', 'bucket/nowhere/empty', undefined],
  ])('is reported: %s /%s', async (method, path, body) => {
    const reply = await service.send(method, path, { raw: body && JSON.stringify(body) })
    expect([reply.status, reply.body]).toEqual([400, NO_BUCKET])
  })
})

describe('an invalid bucket name', () => {
  it.each([
    ['GET', 'bucket/a%2Fb'],
    ['PUT', 'bucket/%C3%A4'],
    ['DELETE', 'bucket/a%23'],
    ['POST', 'object/list/a%25b'],
    ['GET', 'object/a%5Cb/key'],
    ['GET', `object/public/${'x'.repeat(101)}/key`],
  ])('is refused: %s /%s', async (method, path) => {
    const raw = JSON.stringify({ public: true, prefix: '' })
    const reply = await service.send(method, path, method === 'GET' ? {} : { raw })
    const expected = refusal(400, 'Invalid Input', 'InvalidBucketName', 'Bucket name invalid')
    expect([reply.status, reply.body]).toEqual([400, expected])
  })
})

describe('DELETE /bucket/{id}', () => {
  it('refuses a bucket with objects, and emptying removes them', async () => {
    const name = await newBucket(storage)
    await service.send('POST', `object/${name}/a/b`, { raw: 'x' })
    const refused = await service.delete(`bucket/${name}`)
    const message = 'The bucket you tried to delete is not empty'
    expect([refused.status, refused.body]).toEqual([400, refusal(409, 'ResourceNotEmpty', 'ResourceNotEmpty', message)])
    const emptied = await service.post(`bucket/${name}/empty`)
    const queued = 'Empty bucket has been queued. Completion may take up to an hour.'
    expect([emptied.status, emptied.body]).toEqual([200, { message: queued }])
    expect((await service.post(`object/list/${name}`, { prefix: '' })).body).toEqual([])
    const deleted = await service.send('DELETE', `bucket/${name}/`, { headers: { 'content-type': 'application/json' } })
    expect([deleted.status, deleted.body]).toEqual([200, { message: 'Successfully deleted' }])
    expect((await seen(name)).code).toBe('NoSuchBucket')
  })

  it('is allowed to the roles of the policies, and emptying only to the service role', async () => {
    const name = await newBucket(storage)
    expect((await anon.delete(`bucket/${name}`)).body).toEqual(NO_BUCKET)
    const emptied = await anon.post(`bucket/${name}/empty`)
    const message = 'Access denied: Invalid role'
    expect([emptied.status, emptied.body]).toEqual([403, refusal(403, 'Unauthorized', 'AccessDenied', message)])
    expect((await seen(name)).id).toBe(name)
  })
})

describe('the service', () => {
  it('reports that it runs, and to callers that its database does', async () => {
    const [status, version] = await Promise.all([anyone.get('status'), anyone.get('version')])
    expect([status.status, status.body]).toEqual([200, ''])
    expect([version.status, version.body]).toEqual([200, expect.stringMatching(/^\S+$/)])
    for (const caller of [service, anon]) {
      const reply = await caller.get('health')
      expect([reply.status, reply.body]).toEqual([200, { healthy: true }])
    }
    expect((await anyone.get('health')).body).toEqual(NO_CREDENTIAL)
  })

  it.each([
    ['GET', 'nothing'],
    ['GET', 'render/image/public/b/x.png'],
    ['POST', 's3/bucket'],
    ['DELETE', 'cdn/bucket/key'],
    ['PATCH', 'bucket/x'],
    ['GET', ''],
  ])('answers 404 to unknown routes: %s /%s', async (method, path) => {
    const reply = await service.send(method, path, {})
    const message = `Route ${method}:/${path} not found`
    expect([reply.status, reply.body]).toEqual([404, refusal(404, 'Not Found', 'NoSuchRoute', message)])
    expect(reply.headers.get('content-type')).toBe('application/json; charset=utf-8')
  })

  it('allows pages of every origin, also in refusals', async () => {
    const headers = {
      origin: 'https://app.example.com',
      'access-control-request-method': 'DELETE',
      'access-control-request-headers': 'authorization,x-upsert,apikey',
    }
    const preflight = await anyone.send('OPTIONS', 'object/bucket/key', { headers })
    expect(preflight).toMatchObject({ status: 204, body: '' })
    expect(Object.fromEntries(preflight.headers)).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-allow-methods': expect.stringMatching(/(?=.*GET)(?=.*HEAD)(?=.*PUT)(?=.*POST)(?=.*DELETE)/),
      'access-control-allow-headers': expect.stringMatching(/(?=.*authorization)(?=.*x-upsert)(?=.*apikey)/),
    })
    for (const [caller, path] of [
      [service, 'bucket'],
      [anyone, 'bucket'],
      [anyone, 'object/public/nowhere/x'],
      [anyone, 'nothing'],
    ] as const) {
      const reply = await caller.get(path, { headers: { origin: 'https://app.example.com' } })
      expect(reply.headers.get('access-control-allow-origin')).toBe('*')
    }
  })
})

describe('a credential', () => {
  const denied = (message: unknown) => refusal(403, 'Unauthorized', 'AccessDenied', message)
  const withHeaders = (headers: Record<string, string>, query = '') => anyone.get(`bucket${query}`, { headers })

  it('may be in any place where clients put it', async () => {
    const { service: key } = storage.keys
    const replies = await Promise.all([
      withHeaders({ authorization: `Bearer ${key}` }),
      withHeaders({ authorization: `bearer   ${key}` }),
      withHeaders({ authorization: key }),
      withHeaders({}, `?authorization=${key}`),
      withHeaders({}, `?authorization=Bearer%20${key}`),
      withHeaders({ apikey: key }),
      withHeaders({ authorization: `Bearer ${key}`, apikey: 'nonsense' }),
    ])
    expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 200))
  })

  it('is required, and an error says what is wrong with it', async () => {
    const [head, payload] = storage.keys.service.split('.')
    const foreign = await signClaims({ jwtSecret: 'x'.repeat(40) }, { role: 'service_role' }, 60, new Date())
    for (const [reply, expected] of [
      [await withHeaders({}), NO_CREDENTIAL],
      [await withHeaders({}, '?authorization='), denied('Invalid Compact JWS')],
      [await withHeaders({ authorization: 'Bearer ' }), denied('Invalid Compact JWS')],
      [await withHeaders({ authorization: 'Bearer nonsense' }), denied('Invalid Compact JWS')],
      [await withHeaders({ authorization: `Bearer ${head}.${payload}.AAAA` }), denied('signature verification failed')],
      [await withHeaders({ authorization: `Bearer ${foreign}` }), denied('signature verification failed')],
    ] as const) {
      expect([reply.status, reply.body]).toEqual([400, expected])
    }
  })

  it.each([
    ...['GET bucket', 'POST bucket', 'GET bucket/b', 'PUT bucket/b', 'DELETE bucket/b', 'POST bucket/b/empty'],
    ...['POST object/b/k', 'PUT object/b/k', 'DELETE object/b/k', 'DELETE object/b', 'POST object/copy'],
    ...['POST object/move', 'POST object/list/b', 'POST object/list-v2/b', 'POST object/sign/b/k'],
    ...['POST object/sign/b', 'POST object/upload/sign/b/k', 'GET object/authenticated/b/k', 'GET health'],
    'GET object/info/authenticated/b/k',
  ])('is required for %s', async (route) => {
    const [method = '', path = ''] = route.split(' ')
    const missing = await anyone.send(method, path, {})
    expect([missing.status, missing.body]).toEqual([400, NO_CREDENTIAL])
    const wrong = await apiOf(storage, 'nonsense').send(method, path, {})
    expect([wrong.status, wrong.body]).toEqual([400, denied('Invalid Compact JWS')])
  })

  it('expires', async () => {
    const inTwentyYears = new Date(Date.now() + 20 * 366 * 86_400_000)
    const reply = await service.at(inTwentyYears).get('bucket')
    expect([reply.status, reply.body]).toEqual([400, denied('"exp" claim timestamp check failed')])
  })
})

describe('the address', () => {
  const PATH = '/storage/v1/bucket'
  const authorized = (key: string) => ({ authorization: `Bearer ${key}` })

  it('may name the project in its host', async () => {
    const url = new URL(PATH, baseUrl).href
    const to = (ref: string) => ({ host: `${ref}.projects.example.com`, ...authorized(storage.keys.service) })
    const name = await newBucket(storage)
    const listed = await exchange(`${url}?search=${name}`, { headers: to(storage.ref) })
    expect([listed.status, JSON.parse(listed.body)]).toEqual([200, [expect.objectContaining({ name })]])
    expect(await exchange(url, { headers: to('aaaaaaaaaaaaaaaaaaaa') })).toMatchObject({ status: 404 })
  })

  it('may be omitted if the key names the project', async () => {
    const name = await newBucket(storage)
    const url = new URL(`${PATH}?search=${name}`, baseUrl)
    for (const headers of [authorized(storage.keys.service), { apikey: storage.keys.service }]) {
      const reply = await fetch(url, { headers })
      expect([reply.status, await reply.json()]).toEqual([200, [expect.objectContaining({ name })]])
    }
    const [head, payload] = storage.keys.service.split('.')
    for (const headers of [{}, authorized('nonsense'), authorized(`${head}.${payload}.AAAA`)]) {
      const reply = await fetch(url, { headers })
      const expected = refusal(404, 'NoSuchProject', 'NoSuchProject', 'Project not found')
      expect([reply.status, await reply.json()]).toEqual([404, expected])
    }
  })

  it('shows nothing of one project to the key of another', async () => {
    const other = await newProject(storage.organization)
    const reply = await fetch(new URL(`/p/${other}${PATH}`, baseUrl), { headers: authorized(storage.keys.service) })
    expect([reply.status, await reply.json()]).toMatchObject([400, { code: 'AccessDenied' }])
    const missing = await fetch(new URL(`/p/${'a'.repeat(20)}${PATH}`, baseUrl), {
      headers: authorized(storage.keys.service),
    })
    expect([missing.status, await missing.json()]).toMatchObject([404, { code: 'NoSuchProject' }])
  })
})

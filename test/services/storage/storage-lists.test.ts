import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Caller } from '../../support/api.ts'
import { runSql } from '../../support/projects.ts'
import {
  apiOf,
  invalid,
  KEY_TAKEN,
  NO_BUCKET,
  NO_OBJECT,
  newBucket,
  newStorage,
  refusal,
  type TestStorage,
} from '../../support/storage.ts'

const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const TIMES = { created_at: TIME, updated_at: TIME, last_accessed_at: TIME }
const field = (name: string) => invalid(expect.stringContaining(name))

let storage: TestStorage
let service: Caller
let anon: Caller
beforeAll(async () => {
  storage = await newStorage()
  service = apiOf(storage, storage.keys.service)
  anon = apiOf(storage, storage.keys.anon)
})

async function bucketWith(names: string[], fields?: Record<string, unknown>): Promise<string> {
  const bucket = await newBucket(storage, fields)
  for (const name of names) await upload(`${bucket}/${name}`, name)
  return bucket
}
async function upload(path: string, raw: string, headers: Record<string, string> = {}) {
  const plain = { 'content-type': 'text/plain', 'cache-control': 'max-age=60' }
  const reply = await service.send('POST', `object/${path}`, { raw, headers: { ...plain, ...headers } })
  expect(reply.status).toBe(200)
  return reply.body.Id as string
}
const sql = async (query: string) =>
  expect(await runSql(storage.organization.owner, storage.ref, query)).toMatchObject({ status: 201 })
const read = async (path: string) => (await service.get(`object/${path}`)).body
const info = async (path: string) => (await service.get(`object/info/${path}`)).body
const namesOf = (objects: { name: string }[]) => objects.map(({ name }) => name)

describe('POST /object/list/{bucket}', () => {
  it.each<[unknown, unknown]>([
    [{}, invalid("body must have required property 'prefix'")],
    [{ prefix: 7 }, invalid('body/prefix must be string')],
    [{ prefix: 'a\0b' }, invalid('body/prefix must be text without NUL characters or lone surrogates')],
    [{ prefix: '', limit: 0 }, invalid('body/limit must be >= 1')],
    [{ prefix: '', limit: 1.5 }, invalid('body/limit must be integer')],
    [{ prefix: '', limit: '0' }, invalid('body/limit must be >= 1')],
    [{ prefix: '', limit: 'ten' }, field('body/limit')],
    [{ prefix: '', limit: '' }, field('body/limit')],
    [{ prefix: '', offset: -1 }, invalid('body/offset must be >= 0')],
    [{ prefix: '', search: ['x'] }, field('body/search')],
    [{ prefix: '', noncurrentVersions: 'all' }, field('body/noncurrentVersions')],
    [{ prefix: '', exactMatch: 'perhaps' }, field('body/exactMatch')],
    [{ prefix: '', sortBy: { column: 'size' } }, field('body/sortBy/column')],
    [{ prefix: '', sortBy: { column: 'name', order: 'up' } }, field('body/sortBy/order')],
    [{ limit: 0 }, invalid("body must have required property 'prefix', body/limit must be >= 1")],
  ])('refuses %j and names the field', async (body, expected) => {
    const reply = await service.post('object/list/any', body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })

  it('is empty without a bucket, or without a policy', async () => {
    expect(await service.post('object/list/nowhere', { prefix: '' })).toMatchObject({ status: 200, body: [] })
    const bucket = await bucketWith(['a'])
    expect(await anon.post(`object/list/${bucket}`, { prefix: '' })).toMatchObject({ status: 200, body: [] })
    const slashed = await service.post(`object/list/${bucket}/`, { prefix: '' })
    expect([slashed.status, namesOf(slashed.body)]).toEqual([200, ['a']])
  })

  it('accepts null for an omitted field, as some clients send it', async () => {
    const bucket = await bucketWith(['b', 'a'])
    for (const body of [
      { prefix: '', limit: null, offset: null, search: null, sortBy: null },
      { prefix: '', sortBy: { column: null, order: null } },
    ]) {
      expect(namesOf((await service.post(`object/list/${bucket}`, body)).body)).toEqual(['a', 'b'])
    }
    const page = { prefix: null, limit: null, cursor: null, with_delimiter: null, sortBy: null }
    expect(namesOf((await service.post(`object/list-v2/${bucket}`, page)).body.objects)).toEqual(['a', 'b'])
    const move = { bucketId: bucket, sourceKey: 'a', destinationBucket: null, copyMetadata: null, metadata: null }
    for (const way of ['copy', 'move']) {
      expect((await service.post(`object/${way}`, { ...move, destinationKey: way })).status).toBe(200)
    }
  })

  it('knows no older versions and no delete markers', async () => {
    const bucket = await bucketWith(['a'])
    for (const [filter, names] of [
      [{ noncurrentVersions: 'only' }, []],
      [{ deleteMarkers: 'only' }, []],
      [{ noncurrentVersions: 'include', deleteMarkers: 'include' }, ['a']],
      [{ noncurrentVersions: null, deleteMarkers: 'exclude' }, ['a']],
    ] as const) {
      const listed = (await service.post(`object/list/${bucket}`, { prefix: '', ...filter })).body
      const page = (await service.post(`object/list-v2/${bucket}`, filter)).body
      expect([filter, namesOf(listed), page.hasNext, namesOf(page.objects)]).toEqual([filter, names, false, names])
    }
  })

  it('with `exactMatch` lists the object of that name, with its version', async () => {
    const bucket = await bucketWith(['dir/a', 'dir/a/b', 'dir/ab'])
    const { version } = await info(`${bucket}/dir/a`)
    const file = { name: 'dir/a', id: UUID, version, ...TIMES, metadata: expect.objectContaining({ size: 5 }) }
    const listed = async (body: object) =>
      (await service.post(`object/list/${bucket}`, { exactMatch: true, ...body })).body
    expect(await listed({ prefix: 'dir/a' })).toEqual([file])
    expect(await listed({ prefix: 'dir/a', offset: 1 })).toEqual([])
    expect(await listed({ prefix: 'dir' })).toEqual([])
    expect(namesOf(await listed({ prefix: 'dir/a', exactMatch: false }))).toEqual(['b'])
    for (const with_delimiter of [true, false]) {
      const body = { prefix: 'dir/a', exactMatch: true, with_delimiter }
      const page = (await service.post(`object/list-v2/${bucket}`, body)).body
      const object = { ...(with_delimiter && { key: 'dir/a' }), ...file }
      expect(page).toEqual({ hasNext: false, folders: [], objects: [object] })
    }
    expect((await anon.post(`object/list/${bucket}`, { prefix: 'dir/a', exactMatch: true })).body).toEqual([])
  })

  it('accepts text for a number or a boolean, and one name instead of a list', async () => {
    const bucket = await bucketWith(['a', 'b', 'dir/c'])
    const listed = await service.post(`object/list/${bucket}`, { prefix: '', limit: '1', offset: '1' })
    expect([listed.status, namesOf(listed.body)]).toEqual([200, ['b']])
    const page = await service.post(`object/list-v2/${bucket}`, { limit: '2', with_delimiter: 'true' })
    expect(page).toMatchObject({ status: 200, body: { hasNext: true, objects: [{ key: 'a' }, { key: 'b' }] } })
    const signed = await service.post(`object/sign/${bucket}`, { expiresIn: '60', paths: 'a' })
    expect(signed).toMatchObject({ status: 200, body: [{ path: 'a', error: null }] })
    const copy = { bucketId: bucket, sourceKey: 'a', destinationKey: 'd', metadata: { mimetype: 'a/b' } }
    expect((await service.post('object/copy', { ...copy, copyMetadata: 'false' })).body.metadata.mimetype).toBe('a/b')
    const removed = await service.delete(`object/${bucket}`, { prefixes: 'b' })
    expect([removed.status, namesOf(removed.body)]).toEqual([200, ['b']])
  })

  it('takes the characters of a name literally', async () => {
    const bucket = await bucketWith(['a_b/x', 'axb/y', 'a%25b/z', 'a%5Bb%5D/q', "it's/w", 'ÄÖ/ü'])
    for (const [prefix, names] of [
      ['a_b', ['x']],
      ['a%b', ['z']],
      ['a[b]', ['q']],
      ["it's", ['w']],
      ['äö', ['ü']],
      ['%', []],
      ['_', []],
    ] as const) {
      const reply = await service.post(`object/list/${bucket}`, { prefix })
      expect([prefix, namesOf(reply.body)]).toEqual([prefix, names])
    }
    const searched = await service.post(`object/list/${bucket}`, { prefix: '', search: 'a_' })
    expect(namesOf(searched.body)).toEqual(['a_b'])
  })

  it('returns the requested number, and at most 1,500', async () => {
    const bucket = await newBucket(storage)
    await sql(`insert into storage.objects (bucket_id, name)
      select '${bucket}', to_char(n, 'FM0000') from generate_series(0, 1600) as n`)
    const listed = async (body: object) => namesOf((await service.post(`object/list/${bucket}`, body)).body)
    expect(await listed({ prefix: '' })).toHaveLength(100)
    const all = await listed({ prefix: '', limit: 5000 })
    expect([all.length, all.at(-1)]).toEqual([1500, '1499'])
    expect(await listed({ prefix: '', limit: 5000, offset: 1599 })).toEqual(['1599', '1600'])
    const page = (await service.post(`object/list-v2/${bucket}`, { limit: 5000 })).body
    expect([page.objects.length, page.hasNext]).toEqual([1000, true])
    const next = (await service.post(`object/list-v2/${bucket}`, { cursor: page.nextCursor })).body
    expect([next.objects.length, next.hasNext]).toEqual([601, false])
  })
})

describe('POST /object/list-v2/{bucket}', () => {
  const token = (...lines: string[]) => Buffer.from(lines.join('\n')).toString('base64')
  const NO_TOKEN = refusal(400, 'InvalidParameter', 'InvalidParameter', 'Invalid Parameter continuation token')
  it.each<[unknown, unknown]>([
    [{ prefix: 7 }, field('body/prefix')],
    [{ limit: 0 }, field('body/limit')],
    [{ with_delimiter: 'yes' }, field('body/with_delimiter')],
    [{ sortBy: { column: 'last_accessed_at' } }, field('body/sortBy/column')],
    [{ sortBy: { column: 'name', order: 'up' } }, field('body/sortBy/order')],
    [{ deleteMarkers: 'all' }, field('body/deleteMarkers')],
    [{ cursor: 7 }, field('body/cursor')],
    [{ cursor: 'not base64!' }, NO_TOKEN],
    [{ cursor: token('nonsense') }, NO_TOKEN],
    [{ cursor: token('l:a', 'o:asc', 'c:metadata') }, NO_TOKEN],
    [{ cursor: token('l:a', 'o:up', 'c:name') }, NO_TOKEN],
    [{ cursor: token('l:a', 'o:asc', 'c:created_at', 'a:soon') }, NO_TOKEN],
    [{ cursor: token('l:a', 'o:asc', 'c:created_at', 'a:0000-01-01T00:00:00.000Z') }, NO_TOKEN],
    [{ cursor: token('l:a', 'o:asc', 'c:created_at', `a:2026-01-01T00:00:00.${'0'.repeat(200)}Z`) }, NO_TOKEN],
  ])('refuses %j', async (body, expected) => {
    const reply = await service.post('object/list-v2/any', body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })

  it('is empty without a bucket, or without a policy', async () => {
    const nothing = { hasNext: false, folders: [], objects: [] }
    expect((await service.post('object/list-v2/nowhere', {})).body).toEqual(nothing)
    expect((await anon.post(`object/list-v2/${await bucketWith(['a'])}`, {})).body).toEqual(nothing)
  })

  it('starts at the beginning if the cursor is empty', async () => {
    const bucket = await bucketWith(['a'])
    const { status, body } = await service.post(`object/list-v2/${bucket}`, { cursor: '' })
    expect([status, namesOf(body.objects ?? [])]).toEqual([200, ['a']])
  })

  it('continues in its first order, whatever the next request says', async () => {
    const bucket = await bucketWith(['a', 'b', 'c'])
    const begun = { limit: 1, sortBy: { column: 'name', order: 'desc' } }
    const first = (await service.post(`object/list-v2/${bucket}`, begun)).body
    expect(first).toMatchObject({ hasNext: true, nextCursorKey: 'c' })
    const cursor = first.nextCursor
    const next = { cursor, sortBy: { column: 'created_at', order: 'asc' } }
    expect(namesOf((await service.post(`object/list-v2/${bucket}`, next)).body.objects)).toEqual(['b', 'a'])
  })

  /** Returns the names of all pages of one entry each. */
  async function pagesOf(bucket: string, listing: object = {}): Promise<string[]> {
    const seen: string[] = []
    for (let body: object | undefined = { ...listing, limit: 1 }; body && seen.length < 20; ) {
      const page = (await service.post(`object/list-v2/${bucket}`, body)).body as {
        folders: { name: string }[]
        objects: { name: string }[]
        nextCursor?: string
      }
      seen.push(...namesOf(page.folders), ...namesOf(page.objects))
      body = page.nextCursor === undefined ? undefined : { ...listing, limit: 1, cursor: page.nextCursor }
    }
    return seen
  }

  it('ends, whatever name SQL has written', async () => {
    const bucket = await newBucket(storage)
    const names = ['a\no:desc', 'b\n', 'c:\n\nl:x', 'ü']
    const rows = names.map((name) => `('${bucket}', '${name}')`)
    await sql(`insert into storage.objects (bucket_id, name) values ${rows}`)
    expect(await pagesOf(bucket)).toEqual(names)
  })

  it.each(['created_at', 'updated_at'])('ends even if SQL removed times: by %s', async (column) => {
    const bucket = await newBucket(storage)
    const rows = [
      ...['b', 'a', 'dir/b', 'other/c'].map((name) => `('${bucket}', '${name}', null, null)`),
      `('${bucket}', 'c', '-infinity', '-infinity')`,
      `('${bucket}', 'd', 'infinity', 'infinity')`,
      ...[1, 2].map((n) => `('${bucket}', 'e${n}', '2026-01-0${n}', '2026-01-0${n}')`),
    ]
    await sql(`insert into storage.objects (bucket_id, name, created_at, updated_at) values ${rows}`)
    const files = ['a', 'b', 'c', 'd', 'e1', 'e2']
    const listing = { with_delimiter: true, sortBy: { column, order: 'asc' } }
    expect(await pagesOf(bucket, listing)).toEqual(['dir/', 'other/', ...files])
    const back = { ...listing, sortBy: { column, order: 'desc' } }
    expect(await pagesOf(bucket, back)).toEqual(['other/', 'dir/', ...files.toReversed()])
  })
})

describe('POST /object/copy', () => {
  it('creates a separate object, with the metadata of the source or new ones', async () => {
    const bucket = await newBucket(storage)
    const metadata = (value: unknown) => ({ 'x-metadata': Buffer.from(JSON.stringify(value)).toString('base64') })
    const id = await upload(`${bucket}/a`, 'bytes', { ...metadata({ by: 'me' }), 'x-robots-tag': 'noindex' })
    const body = { bucketId: bucket, sourceKey: 'a', destinationKey: 'dir/ä' }
    const copied = await service.post('object/copy', body)
    expect([copied.status, copied.body]).toEqual([
      200,
      {
        ...{ Key: `${bucket}/dir/ä`, Id: UUID, id: copied.body.Id, name: 'dir/ä', bucket_id: bucket, version: UUID },
        ...{ owner: '', owner_id: '', user_metadata: { by: 'me' }, ...TIMES },
        metadata: {
          ...{ eTag: expect.stringMatching(/^"[0-9a-f]{32}"$/), size: 5, contentLength: 5, httpStatusCode: 200 },
          ...{ mimetype: 'text/plain', cacheControl: 'max-age=60', lastModified: TIME, xRobotsTag: 'noindex' },
        },
      },
    ])
    expect(copied.body.Id).not.toBe(id)
    const changes = { metadata: { mimetype: 'text/css', cacheControl: 'no-store' }, copyMetadata: false }
    const again = { ...body, ...changes }
    expect((await service.post('object/copy', again)).body).toEqual(KEY_TAKEN)
    const headers = { 'x-upsert': 'true', ...metadata({ by: 'you' }) }
    const replaced = await service.post('object/copy', again, { headers })
    expect(Object.keys(replaced.body).sort()).toEqual(Object.keys(copied.body).sort())
    expect(replaced.body.metadata).toMatchObject({ cacheControl: 'no-store', xRobotsTag: 'noindex' })
    expect(await info(`${bucket}/dir/ä`)).toMatchObject({
      ...{ id: copied.body.Id, content_type: 'text/css', cache_control: 'no-store', metadata: { by: 'you' } },
    })
    await service.delete(`object/${bucket}/a`)
    expect(await read(`${bucket}/dir/ä`)).toBe('bytes')
  })

  it("keeps the source's metadata, and adds nothing", async () => {
    const bucket = await newBucket(storage)
    await upload(`${bucket}/plain`, 'bytes')
    await upload(`${bucket}/empty`, 'bytes', { 'x-metadata': btoa('{}') })
    for (const sourceKey of ['plain', 'empty']) {
      const metadata = { mimetype: 'text/css', cacheControl: 'no-store' }
      const body = { bucketId: bucket, sourceKey, destinationKey: `copy of ${sourceKey}`, metadata }
      const copied = await service.post('object/copy', body)
      expect(copied.body).toMatchObject({
        metadata: { mimetype: 'text/plain', cacheControl: 'max-age=60' },
        user_metadata: {},
      })
      expect(copied.body.metadata).not.toHaveProperty('xRobotsTag')
      expect((await info(`${bucket}/copy of ${sourceKey}`)).metadata).toEqual({})
    }
    const query = `select name, metadata ? 'xRobotsTag' as tagged, user_metadata from storage.objects where bucket_id = '${bucket}' order by name`
    expect((await runSql(storage.organization.owner, storage.ref, query)).body).toEqual([
      { name: 'copy of empty', tagged: false, user_metadata: {} },
      { name: 'copy of plain', tagged: false, user_metadata: null },
      { name: 'empty', tagged: false, user_metadata: {} },
      { name: 'plain', tagged: false, user_metadata: null },
    ])
  })
})

describe('POST /object/move', () => {
  it('changes only the name', async () => {
    const [bucket, other] = [await bucketWith(['a']), await newBucket(storage)]
    const before = await info(`${bucket}/a`)
    const body = { bucketId: bucket, sourceKey: 'a', destinationKey: 'b/c', destinationBucket: other }
    const reply = await service.post('object/move', body)
    expect([reply.status, reply.body]).toEqual([200, { message: 'Successfully moved' }])
    const after = await info(`${other}/b/c`)
    expect(after).toEqual({ ...before, name: 'b/c', bucket_id: other, last_modified: TIME, version: UUID })
    expect(await read(`${other}/b/c`)).toBe('a')
    expect(await read(`${bucket}/a`)).toEqual(NO_OBJECT)
    const stay = { bucketId: other, sourceKey: 'b/c', destinationKey: 'b/c' }
    expect((await service.post('object/move', stay)).body).toEqual({ message: 'Successfully moved' })
    expect(await info(`${other}/b/c`)).toEqual(after)
  })
})

describe.each(['copy', 'move'])('POST /object/%s', (way) => {
  it.each<[object, unknown]>([
    [{ sourceKey: 'a', destinationKey: 'b' }, invalid("body must have required property 'bucketId'")],
    [{ bucketId: 'b', destinationKey: 'b' }, invalid("body must have required property 'sourceKey'")],
    [{ bucketId: 'b', sourceKey: 'a' }, invalid("body must have required property 'destinationKey'")],
    [{ bucketId: 'b', sourceKey: 7, destinationKey: 'b' }, field('body/sourceKey')],
    [{ bucketId: 'b', sourceKey: 'a', destinationKey: '' }, refusal(400, 'InvalidKey', 'InvalidKey', 'Invalid key: ')],
    [{ bucketId: 'b', sourceKey: 'a', destinationKey: 'a\0' }, refusal(400, 'InvalidKey', 'InvalidKey')],
    [{ bucketId: 'b/c', sourceKey: 'a', destinationKey: 'b' }, refusal(400, 'Invalid Input', 'InvalidBucketName')],
  ])('refuses %j', async (body, expected) => {
    const reply = await service.post(`object/${way}`, body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })

  it('refuses a missing object, a missing bucket and a name in use', async () => {
    const bucketId = await bucketWith(['a', 'b'])
    const related = refusal(404, 'InvalidRequest', 'InvalidRequest', 'The related resource does not exist')
    const taken = way === 'copy' ? KEY_TAKEN : { ...KEY_TAKEN, code: 'ResourceAlreadyExists' }
    for (const [caller, body, expected] of [
      [service, { sourceKey: 'nothing', destinationKey: 'c' }, NO_OBJECT],
      [service, { sourceKey: 'a', destinationKey: 'b' }, taken],
      [service, { sourceKey: 'a', destinationKey: 'c', destinationBucket: 'nowhere' }, related],
      [anon, { sourceKey: 'a', destinationKey: 'c' }, NO_OBJECT],
    ] as const) {
      const reply = await caller.post(`object/${way}`, { bucketId, ...body })
      expect([reply.status, reply.body]).toEqual([400, expected])
    }
    expect(namesOf((await service.post(`object/list/${bucketId}`, { prefix: '' })).body)).toEqual(['a', 'b'])
  })
})

describe('DELETE /object/{bucket}', () => {
  it('returns the removed objects, with the fields of the specification', async () => {
    const bucket = await bucketWith(['a', 'b/c', 'b/d'])
    const prefixes = ['a', 'b/c', 'a', 'b', 'b/', 'nothing', '\0', '\ud800']
    const reply = await service.delete(`object/${bucket}`, { prefixes })
    const removed = { bucket_id: bucket, owner: '', owner_id: '', version: UUID, id: UUID, ...TIMES }
    const metadata = expect.objectContaining({ size: 1 })
    expect(reply.status).toBe(200)
    expect(reply.body.toSorted((a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1))).toEqual([
      { name: 'a', ...removed, metadata },
      { name: 'b/c', ...removed, metadata: expect.objectContaining({ size: 3 }) },
    ])
    expect(namesOf((await service.post(`object/list-v2/${bucket}`, {})).body.objects)).toEqual(['b/d'])
    expect((await anon.delete(`object/${bucket}/`, { prefixes: ['b/d'] })).body).toEqual([])
    expect((await service.delete('object/nowhere', { prefixes: ['a'] })).body).toEqual([])
    const many = Array.from({ length: 1001 }, () => randomUUID())
    expect((await service.delete(`object/${bucket}`, { prefixes: [...many, 'b/d'] })).body).toMatchObject([
      { name: 'b/d' },
    ])
  })

  it('of one version removes the object only if it has that one', async () => {
    const bucket = await bucketWith(['a'])
    const { version } = (await service.get(`object/info/${bucket}/a`)).body
    for (const other of [randomUUID(), 'old', '%00']) {
      const reply = await service.delete(`object/${bucket}/a?versionId=${other}`)
      expect([reply.status, reply.body.code]).toEqual([400, 'NoSuchKey'])
    }
    expect((await service.get(`object/${bucket}/a`)).status).toBe(200)
    expect((await service.delete(`object/${bucket}/a?versionId=${version}`)).status).toBe(200)
    expect((await service.get(`object/${bucket}/a`)).status).toBe(400)
  })

  it('removes an object with a version only if it has that one', async () => {
    const bucket = await bucketWith(['a', 'b', 'c', 'd'])
    const versionOf = async (name: string) => (await service.get(`object/info/${bucket}/${name}`)).body.version
    const versionId = await versionOf('a')
    const prefixes = [
      { path: 'a', versionId: randomUUID() },
      { path: 'a', versionId },
      { path: 'b', versionId },
      { path: 'c', versionId: '\0' },
      { path: 'missing', versionId },
      { path: 'd', versionId: null },
    ]
    const reply = await service.delete(`object/${bucket}`, { prefixes })
    expect([reply.status, namesOf(reply.body).toSorted()]).toEqual([200, ['a', 'd']])
    expect(namesOf((await service.post(`object/list-v2/${bucket}`, {})).body.objects)).toEqual(['b', 'c'])
  })

  it.each<[unknown, unknown]>([
    [{}, invalid("body must have required property 'prefixes'")],
    [{ prefixes: [] }, invalid('body/prefixes must NOT have fewer than 1 items')],
    [{ prefixes: { path: 'a', versionId: null } }, field('body/prefixes')],
    [{ prefixes: ['a', 7] }, field('body/prefixes/1')],
    [{ prefixes: [{ versionId: 'a' }] }, field('body/prefixes/0')],
    [{ prefixes: ['a', { path: 'b' }] }, field('body/prefixes/1')],
  ])('refuses %j', async (body, expected) => {
    const reply = await service.delete('object/any', body)
    expect([reply.status, reply.body]).toEqual([400, expected])
  })
})

describe('DELETE /object/{bucket}/{key}', () => {
  it('removes one object, and reveals only what the caller may know', async () => {
    const bucket = await bucketWith(['a', 'dir/b'])
    for (const [caller, path, expected] of [
      [service, `${bucket}/nothing`, [400, NO_OBJECT]],
      [service, `${bucket}/dir`, [400, NO_OBJECT]],
      [anon, `${bucket}/a`, [400, NO_OBJECT]],
      [anon, `${bucket}/nothing`, [400, NO_OBJECT]],
      [service, `${bucket}/dir/b`, [200, { message: 'Successfully deleted' }]],
      [service, `${bucket}/dir/b`, [400, NO_OBJECT]],
    ] as const) {
      const reply = await caller.delete(`object/${path}`)
      expect([path, reply.status, reply.body]).toEqual([path, ...expected])
    }
    expect(await read(`${bucket}/a`)).toBe('a')
  })

  it('finds no object in a missing bucket', async () => {
    const reply = await service.delete('object/nowhere/a')
    expect([NO_OBJECT, NO_BUCKET]).toContainEqual(reply.body)
  })
})

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { newBucket, newStorage, refusal, type TestStorage } from './storage.ts'
import { type Call, calling, codeOf, openSql } from './storage-http.ts'

let storage: TestStorage
let database: Awaited<ReturnType<typeof openSql>>
let service: ReturnType<typeof calling>
let user: ReturnType<typeof calling>
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  database = await openSql(storage)
  service = calling(storage, storage.keys.service)
  user = calling(storage, storage.keys.anon)
  await database.sql(`create function public.skip() returns trigger language plpgsql as 'begin return null; end';
    create policy all_of_it on storage.objects to anon using (true) with check (true)`)
})
afterAll(() => database.close())
beforeEach(async () => {
  await database.sql('drop trigger if exists skip on storage.objects')
  bucket = await newBucket(storage)
  for (const name of ['a', 'b'])
    expect(codeOf(await service(`POST /object/${bucket}/${name}`, { body: name }))).toBe(200)
})

const skipping = (event: string) =>
  database.sql(`create trigger skip before ${event} on storage.objects for each row execute function public.skip()`)
const rows = () =>
  database.sql('select name, version, updated_at from storage.objects where bucket_id = $1 order by name', [bucket])

const SKIPPED = {
  status: 400,
  body: refusal(403, 'Unauthorized', 'AccessDenied', 'A trigger of the table left the row out'),
}
const ways: Record<string, [string, Call?]> = {
  'an upload': ['POST /object/{b}/new', { body: 'x' }],
  'an upload over nothing': ['PUT /object/{b}/new', { body: 'x' }],
  'an upload over what stands there': ['PUT /object/{b}/a', { body: 'x' }],
  'a copy': ['POST /object/copy', { body: { bucketId: '{b}', sourceKey: 'a', destinationKey: 'new' } }],
  'a copy over what stands there': [
    'POST /object/copy',
    { body: { bucketId: '{b}', sourceKey: 'a', destinationKey: 'b' }, headers: { 'x-upsert': 'true' } },
  ],
  'a move': ['POST /object/move', { body: { bucketId: '{b}', sourceKey: 'a', destinationKey: 'new' } }],
  'a removal': ['DELETE /object/{b}/a'],
  'a removal of many': ['DELETE /object/{b}', { body: { prefixes: ['a', 'b'] } }],
}
const attempt = (way: string, as = service) =>
  as(...(JSON.parse(JSON.stringify(ways[way]).replaceAll('{b}', bucket)) as [string, Call?]))

describe('a trigger that skips', () => {
  it('new buckets: the creation is refused', async () => {
    await database.sql(
      'create trigger skip before insert on storage.buckets for each row execute function public.skip()',
    )
    try {
      expect(await service('POST /bucket', { body: { name: 'skipped' } })).toMatchObject(SKIPPED)
    } finally {
      await database.sql('drop trigger skip on storage.buckets')
    }
    expect(codeOf(await service('GET /bucket/skipped'))).toBe('NoSuchBucket')
  })

  it.each(['an upload', 'an upload over nothing', 'an upload over what stands there', 'a copy'])(
    'inserts: %s is refused',
    async (way) => {
      const before = await rows()
      await skipping('insert')
      expect(await attempt(way)).toMatchObject(SKIPPED)
      expect(await attempt(way, user)).toMatchObject(SKIPPED)
      expect(await rows()).toEqual(before)
    },
  )

  it('inserts: a signed upload is refused', async () => {
    const { url } = (await service(`POST /object/upload/sign/${bucket}/new`)).body
    await skipping('insert')
    expect(await service(`PUT ${url}`, { body: 'x' })).toMatchObject(SKIPPED)
    expect(await rows()).toHaveLength(2)
  })

  it.each(['an upload over what stands there', 'a copy over what stands there'])(
    'updates: %s is refused',
    async (way) => {
      const before = await rows()
      await skipping('update')
      expect(await attempt(way)).toMatchObject(SKIPPED)
      expect(await attempt(way, user)).toMatchObject(SKIPPED)
      expect(await rows()).toEqual(before)
      expect((await service(`GET /object/${bucket}/a`)).body).toBe('a')
    },
  )

  it('updates: a move finds nothing that it could move', async () => {
    const before = await rows()
    await skipping('update')
    expect(codeOf(await attempt('a move'))).toBe('NoSuchKey')
    expect(await rows()).toEqual(before)
  })

  it('deletes: a removal is refused, and one of many names none', async () => {
    const before = await rows()
    await skipping('delete')
    expect(codeOf(await attempt('a removal'))).toBe('AccessDenied')
    expect(await attempt('a removal of many')).toMatchObject({ status: 200, body: [] })
    expect(await rows()).toEqual(before)
  })
})

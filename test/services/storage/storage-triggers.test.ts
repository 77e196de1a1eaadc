import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { newBucket, newStorage, refusal, type TestStorage } from '../../support/storage.ts'
import { type Call, calling, codeOf, openSql } from '../../support/storage-http.ts'

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
  body: refusal(403, 'Unauthorized', 'AccessDenied', 'A trigger of the table skipped the row'),
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

it('removals of the same objects in different orders both succeed', async () => {
  // Postgres finds each object by an index only if there are many, and then in the order of the request.
  await database.sql(
    `insert into storage.objects (bucket_id, name) select $1, 'many/' || n from generate_series(1, 20000) as n`,
    [bucket],
  )
  await database.sql('analyze storage.objects')
  await database.sql(`create function public.slow() returns trigger language plpgsql as
    'begin perform pg_sleep(0.5); return old; end'`)
  await database.sql('create trigger slow before delete on storage.objects for each row execute function public.slow()')
  try {
    const orders = [
      ['a', 'b'],
      ['b', 'a'],
    ]
    const replies = await Promise.all(
      orders.map((prefixes) => service(`DELETE /object/${bucket}`, { body: { prefixes } })),
    )
    expect(replies.map(codeOf)).toEqual([200, 200])
    expect(replies.flatMap(({ body }) => body).map(({ name }) => name)).toHaveLength(2)
  } finally {
    await database.sql('drop trigger slow on storage.objects')
  }
  expect(
    await database.sql(`select from storage.objects where name in ('a', 'b') and bucket_id = $1`, [bucket]),
  ).toEqual([])
})

describe('a trigger that skips', () => {
  it('new buckets makes their creation fail', async () => {
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
    'inserts makes %s fail',
    async (way) => {
      const before = await rows()
      await skipping('insert')
      expect(await attempt(way)).toMatchObject(SKIPPED)
      expect(await attempt(way, user)).toMatchObject(SKIPPED)
      expect(await rows()).toEqual(before)
    },
  )

  it('inserts makes a signed upload fail', async () => {
    const { url } = (await service(`POST /object/upload/sign/${bucket}/new`)).body
    await skipping('insert')
    expect(await service(`PUT ${url}`, { body: 'x' })).toMatchObject(SKIPPED)
    expect(await rows()).toHaveLength(2)
  })

  it.each(['an upload over what stands there', 'a copy over what stands there'])(
    'updates makes %s fail',
    async (way) => {
      const before = await rows()
      await skipping('update')
      expect(await attempt(way)).toMatchObject(SKIPPED)
      expect(await attempt(way, user)).toMatchObject(SKIPPED)
      expect(await rows()).toEqual(before)
      expect((await service(`GET /object/${bucket}/a`)).body).toBe('a')
    },
  )

  it('updates leaves a move nothing to move', async () => {
    const before = await rows()
    await skipping('update')
    expect(codeOf(await attempt('a move'))).toBe('NoSuchKey')
    expect(await rows()).toEqual(before)
  })

  it('deletes makes a removal fail, and a removal of many returns none', async () => {
    const before = await rows()
    await skipping('delete')
    expect(codeOf(await attempt('a removal'))).toBe('AccessDenied')
    expect(await attempt('a removal of many')).toMatchObject({ status: 200, body: [] })
    expect(await rows()).toEqual(before)
  })
})

describe("a refusal by the owner's own tables and functions", () => {
  const whenInserted = (work: string) =>
    database.sql(`create or replace function public.afterwards() returns trigger language plpgsql security definer as
        $$ begin ${work}; return new; end $$;
      create trigger afterwards after insert or update on storage.objects for each row execute function public.afterwards()`)
  afterEach(() =>
    database.sql(
      'drop trigger if exists afterwards on storage.objects; drop table if exists public.files, public.people',
    ),
  )
  const told = (code: string, message: unknown = expect.any(String)) => ({ body: { code, message } })

  it('does not name a missing reference as a missing bucket', async () => {
    await database.sql(
      'create table public.people (id int primary key); create table public.files (owner int references public.people)',
    )
    await whenInserted('insert into public.files values (1)')
    for (const as of [service, user]) {
      expect(await attempt('an upload', as)).toMatchObject(
        told('InvalidRequest', 'The related resource does not exist'),
      )
      expect(await attempt('an upload over nothing', as)).toMatchObject(
        told('InvalidRequest', 'The related resource does not exist'),
      )
    }
    expect(await rows()).toHaveLength(2)
  })

  it('does not name a duplicate elsewhere as a taken key', async () => {
    await database.sql('create table public.files (name text primary key)')
    await whenInserted('insert into public.files values (new.name)')
    expect(codeOf(await attempt('an upload'))).toBe(200)
    expect(codeOf(await service(`DELETE /object/${bucket}/new`))).toBe(200)
    for (const way of ['an upload', 'an upload over nothing', 'a copy'])
      expect(await attempt(way)).toMatchObject(told('DatabaseError', expect.stringContaining('files_pkey')))
    expect(await attempt('a move')).toMatchObject(told('DatabaseError'))
  })

  it('does not name a duplicate elsewhere as an existing bucket', async () => {
    await database.sql(`create table public.files (name text primary key); insert into public.files values ('one');
      create or replace function public.afterwards() returns trigger language plpgsql security definer as
        $$ begin insert into public.files values ('one'); return new; end $$;
      create trigger afterwards after insert on storage.buckets for each row execute function public.afterwards()`)
    try {
      expect(await service('POST /bucket', { body: { name: 'another' } })).toMatchObject(
        told('DatabaseError', expect.stringContaining('files_pkey')),
      )
    } finally {
      await database.sql('drop trigger afterwards on storage.buckets')
    }
  })

  it('keeps an empty bucket that other rows refer to, with the reason', async () => {
    const empty = await newBucket(storage)
    await database.sql(
      `create table public.files (bucket text references storage.buckets); insert into public.files values ('${empty}')`,
    )
    expect(await service(`DELETE /bucket/${empty}`)).toMatchObject(told('ResourceReferenced'))
    expect(codeOf(await service(`DELETE /bucket/${bucket}`))).toBe('ResourceNotEmpty')
  })

  it.each(['QU001', 'PT402', 'P0001', '42501'])("has the owner's own text: %s", async (code) => {
    await whenInserted(`raise exception 'too much of it' using errcode = '${code}'`)
    const wanted = told(code === '42501' ? 'AccessDenied' : 'DatabaseError', 'too much of it')
    expect(await attempt('an upload')).toMatchObject(wanted)
    expect(await attempt('an upload', user)).toMatchObject(wanted)
  })

  it.each([
    ['53200', 429, 'SlowDown'],
    ['54000', 500, 'DatabaseError'],
  ])(
    'does not prove that nothing was written if a limit of the host may be the reason: %s',
    async (code, status, error) => {
      await database.sql('create sequence public.attempts')
      // From now on an upload is first tried without asking what the user may do.
      expect(codeOf(await user(`POST /object/${bucket}/allowed`, { body: 'x' }))).toBe(200)
      try {
        await whenInserted(
          `perform nextval('public.attempts'); execute 'do $do$ begin raise exception ''full'' using errcode = ''${code}''; end $do$'`,
        )
        expect(await attempt('an upload', user)).toMatchObject({ status, body: { code: error } })
        expect(await database.sql('select last_value::int from public.attempts')).toEqual([{ last_value: 1 }])
      } finally {
        await database.sql('drop sequence public.attempts')
      }
    },
  )
})

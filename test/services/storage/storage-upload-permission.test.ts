import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type Reply, workerLogs } from '../../support/api.ts'
import { WAIT } from '../../support/machine.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, codeOf, expectNoStrayBytes, openSql, type Sql, signerOf } from '../../support/storage-http.ts'

let storage: TestStorage
let service: ReturnType<typeof calling>
let newUser: () => Promise<ReturnType<typeof calling>>
let user: ReturnType<typeof calling>
let sql: Sql
let close: () => Promise<void>
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  service = calling(storage, storage.keys.service)
  const signer = await signerOf(storage)
  newUser = async () => calling(storage, await signer.user(randomUUID()))
  const database = await openSql(storage)
  sql = database.sql
  close = database.close
  await sql(`create policy most on storage.objects to authenticated using (name not like 'theirs/%')`)
})
beforeEach(async () => {
  bucket = await newBucket(storage)
  user = await newUser()
  expect(codeOf(await put('first'))).toBe(200)
})
afterEach(() => expectNoStrayBytes(storage, sql))
afterAll(() => close())

/** One moment for all writes of this file, so that what the server caches of them is never too old. */
const CLOCK = String(Date.now())
const FEW = 'x'.repeat(1_000)
const MANY = 'x'.repeat(200_000)

const put = (key: string, { body = FEW, by = user, method = 'POST', type = 'text/plain', upsert = false } = {}) =>
  by(`${method} /object/${bucket}/${key}`, {
    body,
    headers: { 'content-type': type, 'x-upsert': String(upsert), 'x-test-clock': CLOCK },
  })
const change = async (fields: object) =>
  expect(codeOf(await service(`PUT /bucket/${bucket}`, { body: { public: false, ...fields } }))).toBe(200)
const read = async (key: string) => (await service(`GET /object/authenticated/${bucket}/${key}`)).body
const exists = async (key: string) =>
  (await sql('select from storage.objects where bucket_id = $1 and name = $2', [bucket, key])).length > 0

function form(fields: Record<string, string>, body: string, type: string) {
  const parts = Object.entries(fields).map(
    ([name, value]) => `--b\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  )
  const file = `--b\r\ncontent-disposition: form-data; name=""; filename="f"\r\ncontent-type: ${type}\r\n\r\n${body}\r\n`
  return { body: `${file}${parts.join('')}--b--\r\n`, type: 'multipart/form-data; boundary=b' }
}

/** Returns the round trips to the project's database; a look-up of the project queries the control database. */
async function roundTripsOf({ headers }: Reply): Promise<number> {
  const id = String(headers.get('x-request-id'))
  const line = await vi.waitFor(async () => {
    const found = (await workerLogs(id)).find((text) => text.includes('"project_queries"'))
    if (!found) throw new Error(`no line of the log counts the round trips of ${id}`)
    return found
  }, WAIT)
  return JSON.parse(line).project_queries
}

async function roundTripsOfFive(upload: (n: number) => Promise<Reply>): Promise<number[]> {
  const counts: number[] = []
  for (let n = 0; n < 5; n++) {
    const reply = await upload(n)
    expect(codeOf(reply)).toBe(200)
    counts.push(await roundTripsOf(reply))
  }
  return counts
}

describe('a caller who has just written to a bucket', () => {
  it('writes a few bytes in one round trip to the database, and many in two', async () => {
    const typed = form({ cacheControl: '60' }, FEW, 'text/plain')
    expect(await roundTripsOfFive((n) => put(`few-${n}`))).toEqual([1, 1, 1, 1, 1])
    expect(await roundTripsOfFive((n) => put(`form-${n}`, typed))).toEqual([2, 1, 1, 1, 1])
    expect(await roundTripsOfFive((n) => put(`many-${n}`, { body: MANY }))).toEqual([2, 2, 2, 2, 2])
    const upsert = () => put('first', { upsert: true })
    expect(codeOf(await upsert())).toBe(200)
    expect(await roundTripsOfFive(upsert)).toEqual([1, 1, 1, 1, 1])
    const other = await newUser()
    const byTwo = await roundTripsOfFive((n) => put(`new-${n}`, { by: n === 0 ? other : user }))
    expect(byTwo).toEqual([2, 1, 1, 1, 1])
    expect(await read('few-4')).toBe(FEW)
  })

  it('is checked first in another bucket, and so is another user', async () => {
    const other = await newUser()
    const reply = await put('other', { by: other })
    expect(await roundTripsOf(reply)).toBe(2)
    const former = bucket
    bucket = await newBucket(storage)
    expect(await roundTripsOf(await put('elsewhere'))).toBe(2)
    bucket = former
  })

  it.each(['POST', 'PUT'])('is refused if a policy does not allow it, and leaves nothing: %s', async (method) => {
    await put('again', { method })
    for (let n = 0; n < 3; n++) {
      const reply = await put('theirs/a', { method })
      expect([reply.status, reply.body]).toEqual([
        400,
        expect.objectContaining({ statusCode: '403', error: 'Unauthorized', code: 'AccessDenied' }),
      ])
    }
    expect(await exists('theirs/a')).toBe(false)
  })

  it('is refused from the moment that the policy is removed', async () => {
    await sql('alter policy most on storage.objects using (false)')
    expect(codeOf(await put('b'))).toBe('AccessDenied')
    await sql(`alter policy most on storage.objects using (name not like 'theirs/%')`)
    expect(codeOf(await put('b'))).toBe(200)
  })

  it('does not replace an object without requesting it', async () => {
    await service(`POST /object/${bucket}/taken`, { body: 'old' })
    for (let n = 0; n < 3; n++) expect(codeOf(await put('taken'))).toBe('KeyAlreadyExists')
    expect(await read('taken')).toBe('old')
  })

  it('gets changed rules of the bucket at once', async () => {
    await change({ file_size_limit: 999 })
    expect(codeOf(await put('large'))).toBe('EntityTooLarge')
    expect(codeOf(await put('small', { body: 'x'.repeat(999) }))).toBe(200)
    await change({ file_size_limit: 1_000 })
    expect(codeOf(await put('large'))).toBe(200)
    await change({ file_size_limit: null, allowed_mime_types: ['image/png'] })
    expect(codeOf(await put('text'))).toBe('InvalidMimeType')
    expect(codeOf(await put('image', { type: 'image/png' }))).toBe(200)
    await change({ allowed_mime_types: ['text/*'] })
    expect(codeOf(await put('text'))).toBe(200)
    expect(codeOf(await put('image-2', { type: 'image/png' }))).toBe('InvalidMimeType')
    await change({ allowed_mime_types: null })
    expect(codeOf(await put('image-2', { type: 'image/png' }))).toBe(200)
  })

  it('is limited to the types of the bucket by a form that names them late', async () => {
    await change({ allowed_mime_types: ['text/plain'] })
    expect(codeOf(await put('second'))).toBe(200)
    const late = form({ contentType: 'image/png' }, FEW, 'text/plain')
    for (let n = 0; n < 2; n++) expect(codeOf(await put('late', late))).toBe('InvalidMimeType')
    await change({ allowed_mime_types: null })
    expect(codeOf(await put('third'))).toBe(200)
    await change({ allowed_mime_types: ['text/plain'] })
    expect(codeOf(await put('late', late))).toBe('InvalidMimeType')
    expect(await exists('late')).toBe(false)
  })

  it('is checked first at the first form, because a policy may use the size, which no form announces', async () => {
    await sql(`create policy sized on storage.objects as restrictive to authenticated with check (metadata ? 'size')`)
    const refused = await put('form', form({}, FEW, 'text/plain'))
    await sql('drop policy sized on storage.objects')
    expect(codeOf(refused)).toBe('AccessDenied')
    expect(await exists('form')).toBe(false)
  })

  it('sends a form under a policy on `contentLength`, which is at most the length of the request', async () => {
    await sql(`create policy sized on storage.objects as restrictive to authenticated
      with check ((metadata ->> 'contentLength')::bigint < 5000)`)
    const small = await put('small', form({}, FEW, 'text/plain'))
    const large = await put('large', form({}, 'x'.repeat(5_000), 'text/plain'))
    await sql('drop policy sized on storage.objects')
    expect([codeOf(small), codeOf(large)]).toEqual([200, 'AccessDenied'])
    expect([await exists('small'), await exists('large')]).toEqual([true, false])
  })

  it.each([false, true])('leaves nothing if the database has no connection left, with upsert: %s', async (upsert) => {
    expect(codeOf(await put('second', { upsert }))).toBe(200)
    const role = 'supabase_storage_admin'
    await sql(`alter role ${role} connection limit 0`)
    await sql('select pg_terminate_backend(pid) from pg_stat_activity where usename = $1', [role])
    const reply = await put('third', { upsert })
    await sql(`alter role ${role} connection limit -1`)
    expect([reply.status, codeOf(reply)]).toEqual([429, 'SlowDown'])
    expect(await exists('third')).toBe(false)
  })

  it('gets an error if the bucket was deleted', async () => {
    await service(`POST /bucket/${bucket}/empty`)
    expect(codeOf(await service(`DELETE /bucket/${bucket}`))).toBe(200)
    expect(codeOf(await put('b'))).toBe('NoSuchBucket')
    expect(codeOf(await put('b'))).toBe('NoSuchBucket')
  })

  it('gets the error of a trigger', async () => {
    await sql(`create function public.no() returns trigger language plpgsql as $$ begin
        if new.name = 'cursed' then raise exception 'not this one'; end if; return new; end $$;
      create trigger no before insert on storage.objects for each row execute function public.no()`)
    const cursed = await put('cursed')
    const anew = await put('cursed', { by: await newUser() })
    await sql('drop trigger no on storage.objects')
    expect([cursed.status, cursed.body]).toEqual([anew.status, anew.body])
    expect(JSON.stringify(cursed.body)).toContain('not this one')
  })
})

import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Reply } from '../../support/api.ts'
import { newBucket, newStorage, type TestStorage, TOO_LARGE } from '../../support/storage.ts'
import { calling, codeOf, expectNoStrayBytes, openSql, type Sql, signerOf } from '../../support/storage-http.ts'
import { WAIT_MS } from '../../support/wait.ts'

const AT_ONCE = 24

let storage: TestStorage
let service: ReturnType<typeof calling>
let user: ReturnType<typeof calling>
let sql: Sql
let close: () => Promise<void>
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  service = calling(storage, storage.keys.service)
  const signer = await signerOf(storage)
  user = calling(storage, await signer.user(randomUUID()))
  const database = await openSql(storage)
  sql = database.sql
  close = database.close
  await sql('create policy everything on storage.objects to authenticated using (true)')
})
beforeEach(async () => {
  bucket = await newBucket(storage)
})
/** Whoever won: each row has its bytes, and the losers' bytes are removed. */
afterEach(() => expectNoStrayBytes(storage, sql))
afterAll(() => close())

/** Returns 1,000 to 51,000 equal bytes, so that a mixture shows. */
const bytesOf = (n: number) => String.fromCharCode(97 + (n % 26)).repeat(1_000 + 1_999 * (n % 26))
const isWhole = (text: string) => text.length >= 1_000 && text === bytesOf(text.charCodeAt(0) - 97)
const read = async (key: string) => service(`GET /object/authenticated/${bucket}/${key}`)
const put = (key: string, n: number, caller = service) => caller(`PUT /object/${bucket}/${key}`, { body: bytesOf(n) })
const all = <T>(count: number, work: (n: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, n) => work(n)))
const move = (sourceKey: string, destinationKey: string) =>
  service('POST /object/move', { body: { bucketId: bucket, sourceKey, destinationKey } })

describe('at once', () => {
  it.each(['service', 'user'])('exactly one of many uploads to one key succeeds: as %s', async (kind) => {
    const caller = kind === 'user' ? user : service
    const codes = (await all(AT_ONCE, (n) => caller(`POST /object/${bucket}/a`, { body: bytesOf(n) }))).map(codeOf)
    expect(codes.filter((code) => code === 200)).toHaveLength(1)
    expect(codes.filter((code) => code !== 200)).toEqual(Array(AT_ONCE - 1).fill('KeyAlreadyExists'))
    const { body, headers } = await read('a')
    expect(body).toBe(bytesOf(codes.indexOf(200)))
    expect(Number(headers.get('content-length') ?? body.length)).toBe(body.length)
  })

  it.each(['service', 'user'])('many replacements all succeed, and one is left, complete: as %s', async (kind) => {
    const caller = kind === 'user' ? user : service
    const replies = await all(AT_ONCE, (n) => put('a', n, caller))
    expect(replies.map(codeOf)).toEqual(replies.map(() => 200))
    expect(new Set(replies.map(({ body }) => body.Id)).size).toBe(1)
    const { body } = await read('a')
    expect(isWhole(body)).toBe(true)
    expect((await service(`GET /object/info/${bucket}/a`)).body.size).toBe(body.length)
  })

  it('many replacements all succeed at any isolation level of the owner', async () => {
    const beginAnew = async () => {
      await sql(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'supabase_storage_admin'`)
      await vi.waitFor(
        async () => expect((await all(4, (n) => put('any', n))).map(codeOf)).toEqual([200, 200, 200, 200]),
        { timeout: WAIT_MS },
      )
    }
    await sql(`alter database postgres set default_transaction_isolation = 'serializable'`)
    await beginAnew()
    const replies = await all(AT_ONCE, (n) => put(`a${n % 3}`, n, user))
    expect(replies.map(codeOf)).toEqual(replies.map(() => 200))
    await sql('alter database postgres reset default_transaction_isolation')
    await beginAnew()
  })

  it('replacing and deleting leave the key or remove it', async () => {
    await put('a', 0)
    const replies = await all(AT_ONCE, (n) => (n % 2 ? put('a', n) : service(`DELETE /object/${bucket}/a`)))
    for (const [n, reply] of replies.entries()) expect(n % 2 ? [200] : [200, 'NoSuchKey']).toContain(codeOf(reply))
    const left = await read('a')
    if (left.status === 200) expect(isWhole(left.body)).toBe(true)
    else expect(codeOf(left)).toBe('NoSuchKey')
  })

  it('one of many moves to one key succeeds, and no object is lost', async () => {
    await all(8, (n) => put(`from-${n}`, n))
    const codes = (await all(8, (n) => move(`from-${n}`, 'to'))).map(codeOf)
    expect(codes.filter((code) => code === 200)).toHaveLength(1)
    expect(codes.filter((code) => code === 'ResourceAlreadyExists')).toHaveLength(7)
    expect((await read('to')).body).toBe(bytesOf(codes.indexOf(200)))
    const rows = await sql('select name from storage.objects where bucket_id = $1', [bucket])
    expect(rows).toHaveLength(8)
  })

  it('one of many moves of one object succeeds', async () => {
    await put('from', 7)
    const codes = (await all(8, (n) => move('from', `to-${n}`))).map(codeOf)
    expect(codes.filter((code) => code === 200)).toHaveLength(1)
    expect(codes.filter((code) => code === 'NoSuchKey')).toHaveLength(7)
    expect((await read(`to-${codes.indexOf(200)}`)).body).toBe(bytesOf(7))
  })

  it('two objects that swap places do not deadlock', async () => {
    await Promise.all([put('a', 1), put('b', 2)])
    const codes = (await Promise.all([move('a', 'b'), move('b', 'a')])).map(codeOf)
    for (const code of codes) expect([200, 'ResourceAlreadyExists', 'ResourceLocked', 'NoSuchKey']).toContain(code)
    const left = await sql('select name from storage.objects where bucket_id = $1', [bucket])
    expect(left).toHaveLength(2)
  })

  it('moving and uploading to one key leave one of them there', async () => {
    await put('from', 1)
    const [moved, uploaded] = await Promise.all([
      move('from', 'to'),
      service(`POST /object/${bucket}/to`, { body: bytesOf(2) }),
    ])
    expect([codeOf(moved), codeOf(uploaded)].filter((code) => code === 200)).toHaveLength(1)
    expect((await read('to')).body).toBe(bytesOf(moved.status === 200 ? 1 : 2))
  })

  it('a copy of an object that is being replaced has one version or the other', async () => {
    await put('a', 0)
    const copy = (n: number) =>
      service('POST /object/copy', { body: { bucketId: bucket, sourceKey: 'a', destinationKey: `copy-${n}` } })
    const replies = await all(AT_ONCE, (n) => (n % 2 ? put('a', n) : copy(n)))
    expect(replies.map(codeOf)).toEqual(replies.map(() => 200))
    for (let n = 0; n < AT_ONCE; n += 2) {
      const { body } = await read(`copy-${n}`)
      expect({ n, isWhole: isWhole(body) }).toEqual({ n, isWhole: true })
    }
  })

  it('emptying a bucket removes its objects, and an upload under way comes after it or before it', async () => {
    await all(4, (n) => put(`old-${n}`, n))
    const [emptied, ...uploads] = await Promise.all([
      service(`POST /bucket/${bucket}/empty`),
      ...Array.from({ length: 8 }, (_, n) => put(`new-${n}`, n)),
    ])
    expect([emptied, ...uploads].map(codeOf)).toEqual(Array(9).fill(200))
    const rows = await sql('select name from storage.objects where bucket_id = $1', [bucket])
    for (const { name } of rows) {
      expect(name).toMatch(/^new-/)
      expect(isWhole((await read(name)).body)).toBe(true)
    }
  })

  it('deleting a bucket loses no upload', async () => {
    const [deleted, ...uploads] = await Promise.all([
      service(`DELETE /bucket/${bucket}`),
      ...Array.from({ length: 8 }, (_, n) => put(`a-${n}`, n)),
    ])
    const stands = (await sql('select from storage.buckets where id = $1', [bucket])).length === 1
    expect(codeOf(deleted)).toBe(stands ? 'ResourceNotEmpty' : 200)
    for (const upload of uploads) expect(stands ? [200] : ['NoSuchBucket']).toContain(codeOf(upload))
  })

  it('deleting the bucket is safe during an upload', async () => {
    let finish = () => {}
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode('x'.repeat(100_000)))
        finish = () => controller.close()
      },
    })
    const uploading = fetch(`${storage.url}/object/${bucket}/slow`, {
      method: 'POST',
      body,
      duplex: 'half',
      headers: { authorization: `Bearer ${storage.keys.service}` },
    } as RequestInit)
    await expect.poll(() => service(`GET /bucket/${bucket}`).then(codeOf)).toBe(200)
    expect(codeOf(await service(`DELETE /bucket/${bucket}`))).toBe(200)
    finish()
    expect(await (await uploading).json()).toMatchObject({ code: 'NoSuchBucket' })
  })

  it('a token for one upload is valid for one', async () => {
    const headers = { 'x-upsert': 'true' }
    const { url } = (await service(`POST /object/upload/sign/${bucket}/a`, { headers })).body
    const use = (n: number) => calling(storage)(`PUT ${url}`, { body: bytesOf(n) })
    const codes = (await all(8, use)).map(codeOf)
    expect(codes.filter((code) => code === 200)).toHaveLength(1)
    expect(codes.filter((code) => code === 'InvalidSignature')).toHaveLength(7)
    expect((await read('a')).body).toBe(bytesOf(codes.indexOf(200)))
    expect(codeOf(await use(9))).toBe('InvalidSignature')
  })

  it('readers of a key that is replaced again and again see one version each', async () => {
    await put('a', 0)
    let over = false
    const seen = new Set<number>()
    const reading = async () => {
      while (!over) {
        const { status, body, headers } = await read('a')
        expect([status, isWhole(body)]).toEqual([200, true])
        const { body: part, status: partial } = await service(`GET /object/authenticated/${bucket}/a`, {
          headers: { range: 'bytes=100-899' },
        })
        expect([partial, part]).toEqual([206, part[0].repeat(800)])
        expect(headers.get('etag')).toMatch(/^"[0-9a-f]{32}"$/)
        seen.add(body.length)
      }
    }
    const readers = [reading(), reading(), reading()]
    for (let n = 1; n <= 40; n++) expect(codeOf(await put('a', n))).toBe(200)
    over = true
    await Promise.all(readers)
    expect(seen.size).toBeGreaterThan(5)
  })
})

describe('a change in between', () => {
  /** Makes a gate in a policy: statements under the policy wait until the gate is opened. */
  async function closedGate(policy: (gate: string) => string) {
    const gate = `gate_${randomUUID().replaceAll('-', '')}`
    await sql(`create table ${gate} (); insert into ${gate} default values; grant select on ${gate} to authenticated`)
    await sql(`create policy ${gate} on storage.objects as restrictive ${policy(`exists (select from ${gate})`)}`)
    const holder = await openSql(storage)
    await holder.sql(`begin; lock table ${gate} in access exclusive mode`)
    const waiting = async () =>
      (await sql('select from pg_locks where relation = $1::regclass and not granted', [gate])).length
    return {
      reached: () => expect.poll(waiting).toBeGreaterThan(0),
      async open() {
        await holder.sql('rollback')
        await holder.close()
      },
      remove: () => sql(`drop policy ${gate} on storage.objects; drop table ${gate}`),
    }
  }
  const upsert = (key: string, body: string, said: object) =>
    service(`PUT /object/${bucket}/${key}`, { body, headers: { 'x-metadata': btoa(JSON.stringify(said)) } })

  it.each<[string, (by: typeof user) => Promise<Reply>, unknown]>([
    ['read', (by) => by(`GET /object/authenticated/${bucket}/a`), 'new'],
    ['described', (by) => by(`GET /object/info/${bucket}/a`), { size: 3, metadata: { open: true } }],
    [
      'copied',
      (by) => by('POST /object/copy', { body: { bucketId: bucket, sourceKey: 'a', destinationKey: 'copy' } }),
      { metadata: expect.objectContaining({ size: 3 }), user_metadata: { open: true } },
    ],
  ])('is visible in the object that is %s, if the caller may see only that one', async (_, act, expected) => {
    await upsert('a', 'a secret', { open: false })
    const gate = await closedGate(
      (passed) => `for select to authenticated using (${passed} and user_metadata->>'open' = 'true')`,
    )
    const reply = act(user)
    await gate.reached()
    await upsert('a', 'new', { open: true })
    await gate.open()
    const { status, body } = await reply
    await gate.remove()
    expect([status, body]).toEqual([200, typeof expected === 'object' ? expect.objectContaining(expected) : expected])
  })

  it('does not bypass the rules of the other bucket in a move', async () => {
    const narrow = await newBucket(storage, { file_size_limit: 10 })
    await upsert('a', 'small', {})
    const gate = await closedGate((passed) => `for update to authenticated using (${passed})`)
    const moved = user('POST /object/move', {
      body: { bucketId: bucket, sourceKey: 'a', destinationBucket: narrow, destinationKey: 'a' },
    })
    await gate.reached()
    await upsert('a', 'far too large', {})
    await gate.open()
    const { status, body } = await moved
    await gate.remove()
    expect([status, body]).toEqual([400, TOO_LARGE])
    expect((await read('a')).body).toBe('far too large')
  })
})

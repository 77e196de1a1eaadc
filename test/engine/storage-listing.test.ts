import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Listing, listObjects, listPage, type Page } from '../../src/services/storage/statements/lists.ts'
import type { ObjectRow } from '../../src/services/storage/statements/object-rows.ts'
import { createRandom } from '../faults/random.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'
import { anon, newStorageDatabase, type StorageDatabase, service } from './storage-database.ts'

type Entry = Pick<ObjectRow, 'name' | 'created_at'> & { id: string | null }

let host: HostEngine
let storage: StorageDatabase
beforeAll(async () => {
  host = await startHostEngine()
  storage = await newStorageDatabase(host)
})
afterAll(async () => {
  await storage.close()
  await host.stop()
})

const BYTES = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))

async function list(bucketId: string, listing: Partial<Listing> = {}, caller = service): Promise<Entry[]> {
  const wanted = { prefix: '', search: '', limit: 100, offset: 0, column: 'name', order: 'asc', ...listing } as const
  return storage.as<Entry>(caller, listObjects({ bucketId, ...wanted }))
}
const names = async (bucketId: string, listing: Partial<Listing> = {}) =>
  (await list(bucketId, listing)).map(({ name, id }) => (id === null ? `${name}/` : name))

/** Returns all pages, as a client fetches them; each starts after the last entry of the one before. */
async function pages(bucketId: string, page: Partial<Page> = {}): Promise<string[]> {
  const seen: string[] = []
  const column = page.column ?? 'name'
  let after: Page['after']
  do {
    const wanted = { prefix: '', delimited: true, limit: 3, order: 'asc', ...page, column, after } as const
    const entries = await storage.as<Entry>(service, listPage({ bucketId, ...wanted }))
    seen.push(...entries.map(({ name }) => name))
    const last = entries.length < wanted.limit ? undefined : entries.at(-1)
    after = last && { name: last.name, time: (column !== 'name' && last.created_at) || undefined }
  } while (after)
  return seen
}

describe('the first listing', () => {
  it('shows the files and folders directly below the prefix, with null for the fields that folders lack', async () => {
    const bucket = await storage.bucket({ names: ['b.txt', 'a/1', 'a/2/3', 'c/4'] })
    const nothing = { updated_at: null, created_at: null, last_accessed_at: null, metadata: null }
    const times = {
      updated_at: expect.any(String),
      created_at: expect.any(String),
      last_accessed_at: expect.any(String),
    }
    expect(await list(bucket)).toEqual([
      { name: 'a', id: null, ...nothing },
      { name: 'b.txt', id: expect.any(String), ...times, metadata: { size: 3 } },
      { name: 'c', id: null, ...nothing },
    ])
    expect(await names(bucket, { prefix: 'a/' })).toEqual(['1', '2/'])
    expect(await names(bucket, { prefix: 'a/2/' })).toEqual(['3'])
    expect(await names(bucket, { prefix: 'x/' })).toEqual([])
    expect(await names('nowhere')).toEqual([])
  })

  it('ignores case in the prefix, the search and the order', async () => {
    const bucket = await storage.bucket({ names: ['Docs/Ärger.txt', 'docs/b.txt', 'DOCS/Sub/x', 'a', 'B', 'ы', 'Ы2'] })
    expect(await names(bucket)).toEqual(['a', 'B', expect.stringMatching(/^docs\/$/i), 'ы', 'Ы2'])
    expect(await names(bucket, { prefix: 'dOCS/' })).toEqual(['b.txt', 'Sub/', 'Ärger.txt'])
    expect(await names(bucket, { prefix: 'docs/', search: 'S' })).toEqual(['Sub/'])
    expect(await names(bucket, { prefix: 'docs/', search: 'ä' })).toEqual(['Ärger.txt'])
    expect(await names(bucket, { search: 'Ы' })).toEqual(['ы', 'Ы2'])
  })

  it('takes characters that are patterns elsewhere literally', async () => {
    const bucket = await storage.bucket({ names: ['%', 'a', '_b/c', '\\x', "it's", 'a//b', 'a/', '😀', '\u{10ffff}'] })
    expect(await names(bucket)).toEqual(['%', '\\x', '_b/', 'a', 'a/', "it's", '😀', '\u{10ffff}'])
    expect(await names(bucket, { search: '%' })).toEqual(['%'])
    expect(await names(bucket, { search: '\\' })).toEqual(['\\x'])
    expect(await names(bucket, { prefix: '_b/' })).toEqual(['c'])
    expect(await names(bucket, { prefix: 'a/' })).toEqual(['', '/'])
    expect(await names(bucket, { prefix: 'a//' })).toEqual(['b'])
  })

  it('sorts by time with folders first, limits and skips', async () => {
    const bucket = await storage.bucket()
    await storage.sql(`insert into storage.objects (bucket_id, name, created_at, updated_at, last_accessed_at)
      select '${bucket}', name, at, at, at
      from unnest(array['c', 'x/1', 'a', 'y/1', 'b']) with ordinality as row (name, n),
        lateral (select timestamptz '2026-01-01' + n * interval '1 second' as at)`)
    expect(await names(bucket, { column: 'created_at' })).toEqual(['x/', 'y/', 'c', 'a', 'b'])
    expect(await names(bucket, { column: 'updated_at', order: 'desc' })).toEqual(['y/', 'x/', 'b', 'a', 'c'])
    expect(await names(bucket, { column: 'created_at', limit: 2, offset: 1 })).toEqual(['y/', 'c'])
    expect(await names(bucket, { column: 'last_accessed_at', limit: 2, offset: 3 })).toEqual(['a', 'b'])
    expect(await names(bucket, { order: 'desc', limit: 2, offset: 1 })).toEqual(['x/', 'c'])
    expect(await names(bucket, { offset: 5 })).toEqual([])
  })

  it('never shows more than 1,500 entries', async () => {
    const bucket = await storage.bucket()
    await storage.sql(
      `insert into storage.objects (bucket_id, name) select '${bucket}', n from generate_series(1, 1600) as n`,
    )
    expect(await list(bucket, { limit: 10_000 })).toHaveLength(1500)
  })

  it('shows only what the caller may see, including folders', async () => {
    const bucket = await storage.bucket({ names: ['open/a', 'open/b/c', 'shut/a', 'shut.txt', 'open.txt'] })
    expect(await list(bucket, {}, anon)).toEqual([])
    await storage.policies(
      `on storage.objects for select to anon using (bucket_id = '${bucket}' and name like 'open%' and name <> 'open/a')`,
    )
    expect((await list(bucket, {}, anon)).map(({ name }) => name)).toEqual(['open.txt', 'open'])
    expect((await list(bucket, { prefix: 'open/' }, anon)).map(({ name }) => name)).toEqual(['b'])
    expect((await list(bucket, { column: 'created_at' }, anon)).map(({ name }) => name)).toEqual(['open', 'open.txt'])
  })
})

describe('the second listing', () => {
  it('continues after the last entry of a page, in both directions', async () => {
    const bucket = await storage.bucket({ names: ['b', 'a/1', 'a/2', 'B', 'c/1/2', 'a', 'd', 'c.txt', 'c0'] })
    const expected = ['B', 'a', 'a/', 'b', 'c.txt', 'c/', 'c0', 'd']
    expect(await pages(bucket)).toEqual(expected)
    expect(await pages(bucket, { order: 'desc' })).toEqual(expected.toReversed())
    expect(await pages(bucket, { prefix: 'c/' })).toEqual(['c/1/'])
    expect(await pages(bucket, { prefix: 'c' })).toEqual(['c.txt', 'c/', 'c0'])
    expect(await pages(bucket, { delimited: false, prefix: 'a' })).toEqual(['a', 'a/1', 'a/2'])
    expect(await pages(bucket, { delimited: false, prefix: 'a', order: 'desc', limit: 1 })).toEqual(['a/2', 'a/1', 'a'])
  })

  it('loses and repeats nothing when sorted by time, even if times are equal to the millisecond', async () => {
    const bucket = await storage.bucket()
    await storage.sql(`insert into storage.objects (bucket_id, name, created_at)
      select '${bucket}', case when n % 5 = 0 then 'dir' || n || '/x' else 'f' || n end,
        '2026-01-01'::timestamptz + (n / 4) * interval '900 microseconds' from generate_series(1, 30) as n`)
    for (const order of ['asc', 'desc'] as const) {
      const seen = await pages(bucket, { column: 'created_at', order, limit: 4 })
      expect(new Set(seen).size).toBe(30)
      expect(seen).toHaveLength(30)
      expect(seen.findIndex((name) => !name.endsWith('/'))).toBe(6)
      expect(await pages(bucket, { column: 'created_at', order, delimited: false })).toHaveLength(30)
    }
  })
})

describe('arbitrary names', () => {
  const random = createRandom(20_261_121)
  const segment = () => Array.from({ length: random.whole(0, 2) }, () => random.pick([...'aAbB.-0é'])).join('')
  const names = [
    ...new Set(Array.from({ length: 250 }, () => Array.from({ length: random.whole(1, 4) }, segment).join('/'))),
  ].filter((name) => name !== '')
  const prefixes = ['', 'a/', 'A/b/', '/', 'b//', 'é/', 'b']

  /** Computes what the listings must show, the slow way. */
  function model(prefix: string, keyOf: (name: string) => string, compare: (a: string, b: string) => number): string[] {
    const [start, base] = [keyOf(prefix), prefix.length]
    const entries = names
      .filter((name) => keyOf(name).startsWith(start))
      .map((name) => {
        const slash = keyOf(name).indexOf('/', base)
        return slash < 0 ? keyOf(name) : keyOf(name).slice(0, slash + 1)
      })
    return [...new Set(entries)].toSorted(compare)
  }

  let bucket: string
  beforeAll(async () => {
    bucket = await storage.bucket()
    await storage.sql(
      `insert into storage.objects (bucket_id, name) values ${names.map((name) => `('${bucket}', '${name}')`).join(', ')}`,
    )
  })

  it.each(prefixes)('are paged in the order of their bytes, under %j', async (prefix) => {
    const expected = model(prefix, (name) => name, BYTES)
    for (const limit of [1, 7, 1000]) {
      expect(await pages(bucket, { prefix, limit })).toEqual(expected)
      expect(await pages(bucket, { prefix, limit, order: 'desc' })).toEqual(expected.toReversed())
    }
    expect((await pages(bucket, { prefix, column: 'created_at', limit: 7 })).toSorted(BYTES)).toEqual(expected)
    const all = names.filter((name) => name.startsWith(prefix)).toSorted(BYTES)
    expect(await pages(bucket, { prefix, limit: 50, delimited: false })).toEqual(all)
  })

  it.each(prefixes.filter((prefix) => prefix === '' || prefix.endsWith('/')))(
    'are listed in the order of their folded bytes, under %j',
    async (prefix) => {
      const folded = (name: string) => name.toLowerCase()
      const files = new Set(names.filter((name) => folded(name).startsWith(folded(prefix))).map(folded))
      const expected = model(prefix, folded, BYTES)
      const shown = async (listing: Partial<Listing>) =>
        (await list(bucket, { prefix, limit: 1500, ...listing })).map(({ name, id }) =>
          folded(prefix + name + (id === null ? '/' : '')),
        )
      const seen = await shown({})
      expect([...new Set(seen)]).toEqual(expected)
      // Names that differ only in case are files of their own.
      expect(seen.filter((name) => !expected.includes(name) && !files.has(name))).toEqual([])
      expect((await shown({ order: 'desc' })).toReversed()).toEqual(seen)
      expect([...(await shown({ limit: 5 })), ...(await shown({ offset: 5 }))]).toEqual(seen)
    },
  )
})

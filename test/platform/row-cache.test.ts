import { describe, expect, it } from 'vitest'
import { createRowCache, type Reader, type RowKey } from '../../src/platform/db/row-cache.ts'

const BEGIN = Date.parse('2026-01-01')

interface Value extends RowKey {
  characters: number
}

/** Makes a cache whose reads find every name except those that begin with `no`, and records the keys of each read. */
function newCache({ entriesMax = 1_000, charactersMax = 1_000_000_000, characters = 1 } = {}) {
  const statements: string[][] = []
  let gate: Promise<void> | undefined
  const cache = createRowCache<Value>({
    read: async (_reader, wanted) => {
      statements.push(wanted.map(({ ref, name }) => `${ref}/${name}`))
      await gate
      return wanted.map((key) => ({ ...key, characters }))
    },
    isMissing: ({ name }) => name.startsWith('no'),
    charactersOf: (value) => value.characters,
    entriesMax,
    charactersMax,
  })
  const renewals: Promise<unknown>[] = []
  // The reader's statements are never used.
  const reader = { waitUntil: (renewal: Promise<unknown>) => renewals.push(renewal) } as unknown as Reader
  return {
    forget: cache.invalidate,
    /** Gets a key at a time in milliseconds and returns the reads that this caused: none if it was cached. */
    async open(key: string, at = 0): Promise<string[][]> {
      const [ref = '', name = ''] = key.split('/')
      const before = statements.length
      await cache.get(() => reader, { ref, name }, BEGIN + at)
      await Promise.all(renewals.splice(0))
      return statements.slice(before)
    },
    /** Makes reads wait until the returned function is called. */
    closeGate(): () => void {
      const { promise, resolve } = Promise.withResolvers<void>()
      gate = promise
      return () => {
        gate = undefined
        resolve()
      }
    },
  }
}

const names = (count: number, prefix: string) => Array.from({ length: count }, (_, index) => `${prefix}${index}`)

describe('a cached row', () => {
  it('is read once, until it is too old or its project is invalidated', async () => {
    const { open, forget } = newCache()
    expect(await open('a/x')).toEqual([['a/x']])
    expect(await open('a/x', 499)).toEqual([])
    forget('b')
    expect(await open('a/x', 499)).toEqual([])
    forget('a')
    expect(await open('a/x', 499)).toEqual([['a/x']])
    expect(await open('a/x', 1_499)).toEqual([['a/x']])
  })

  it('is kept from a read during which only other projects were invalidated', async () => {
    const { open, forget, closeGate } = newCache()
    const openGate = closeGate()
    const reading = [open('a/x'), open('b/x')]
    forget('b')
    openGate()
    await Promise.all(reading)
    expect(await open('a/x')).toEqual([])
    expect(await open('b/x')).toEqual([['b/x']])
  })

  it('is not kept from a read during which too many projects were invalidated to remember them', async () => {
    const { open, forget, closeGate } = newCache()
    const openGate = closeGate()
    const reading = open('a/x')
    for (const ref of ['a', ...names(1_000, 'r')]) forget(ref)
    openGate()
    await reading
    expect(await open('a/x')).toEqual([['a/x']])
    expect(await open('a/x')).toEqual([])
  })

  it('is renewed together with others while it is in use, except for missing names', async () => {
    const { open } = newCache()
    for (const key of ['a/x', 'a/y', 'a/no', 'b/x', 'c/x']) await open(key)
    for (const key of ['a/x', 'a/y', 'a/no']) await open(key, 400)
    expect(await open('b/x', 600)).toEqual([['a/x', 'a/y', 'b/x', 'c/x']])
    for (const key of ['a/x', 'a/y', 'b/x', 'c/x']) expect(await open(key, 1_099)).toEqual([])
    expect(await open('a/no', 1_099)).toEqual([['a/no']])
  })

  it('is renewed in parts if it is large', async () => {
    const { open } = newCache({ characters: 1_500_000 })
    for (const key of ['a/x', 'a/y', 'b/x', 'c/x', 'd/x']) await open(key)
    expect(await open('a/x', 600)).toEqual([
      ['a/x', 'a/y', 'b/x'],
      ['c/x', 'd/x'],
    ])
    const { open: openMany } = newCache({ entriesMax: 5_000 })
    for (const name of names(1_001, 'x')) await openMany(`a/${name}`)
    expect((await openMany('a/x0', 600)).map(({ length }) => length)).toEqual([1_000, 1])
  })

  it('is evicted when the cache is full, the oldest read first', async () => {
    const { open } = newCache({ entriesMax: 3 })
    for (const key of ['a/x', 'b/x', 'c/x', 'a/y', 'd/x']) await open(key)
    for (const key of ['a/x', 'a/y', 'd/x']) expect(await open(key)).toEqual([])
    for (const key of ['b/x', 'c/x']) expect(await open(key)).toEqual([[key]])
  })

  it('counts its characters toward the limit, and the names of a project share them', async () => {
    const { open } = newCache({ characters: 10, charactersMax: 20 })
    for (const key of ['a/x', 'a/y', 'b/x', 'b/y', 'b/z']) await open(key)
    for (const key of ['a/x', 'a/y', 'b/x', 'b/y', 'b/z']) expect(await open(key)).toEqual([])
    await open('c/x')
    for (const key of ['b/x', 'b/y', 'b/z', 'c/x']) expect(await open(key)).toEqual([])
    expect(await open('a/x')).toEqual([['a/x']])
  })

  it('is not evicted by missing names of its own or another project', async () => {
    const { open } = newCache({ entriesMax: 300 })
    for (const key of ['a/x', 'b/x']) await open(key)
    for (const name of names(1_000, 'no')) expect(await open(`a/${name}`)).toHaveLength(1)
    for (const key of ['a/x', 'b/x', 'a/no999', 'a/no900']) expect(await open(key)).toEqual([])
    expect(await open('a/no899')).toEqual([['a/no899']])
  })
})

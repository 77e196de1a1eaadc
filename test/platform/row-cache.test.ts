import { describe, expect, it } from 'vitest'
import { createRowCache, type Reader, type RowKey } from '../../src/platform/db/row-cache.ts'

const BEGIN = Date.parse('2026-01-01')

interface Value extends RowKey {
  characters: number
}

/** Finds each name but those that begin with `no`, and notes what was asked for in each statement. */
function newKept({ entriesMax = 1_000, charactersMax = 1_000_000_000, characters = 1 } = {}) {
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
  // What a statement would go through is not asked for.
  const reader = { waitUntil: (renewal: Promise<unknown>) => renewals.push(renewal) } as unknown as Reader
  return {
    forget: cache.invalidate,
    /** Returns what was read for it: nothing where it was cached. `at` in milliseconds. */
    async open(key: string, at = 0): Promise<string[][]> {
      const [ref = '', name = ''] = key.split('/')
      const before = statements.length
      await cache.get(() => reader, { ref, name }, BEGIN + at)
      await Promise.all(renewals.splice(0))
      return statements.slice(before)
    },
    /** Reads wait until it is called. */
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

describe('what is cache', () => {
  it('is read once, until it has grown old or its project is forgotten', async () => {
    const { open, forget } = newKept()
    expect(await open('a/x')).toEqual([['a/x']])
    expect(await open('a/x', 499)).toEqual([])
    forget('b')
    expect(await open('a/x', 499)).toEqual([])
    forget('a')
    expect(await open('a/x', 499)).toEqual([['a/x']])
    expect(await open('a/x', 1_499)).toEqual([['a/x']])
  })

  it('is what a read found while only other projects were forgotten', async () => {
    const { open, forget, closeGate } = newKept()
    const openGate = closeGate()
    const reading = [open('a/x'), open('b/x')]
    forget('b')
    openGate()
    await Promise.all(reading)
    expect(await open('a/x')).toEqual([])
    expect(await open('b/x')).toEqual([['b/x']])
  })

  it('is not what a read found of which nobody knows any more whether it was forgotten', async () => {
    const { open, forget, closeGate } = newKept()
    const openGate = closeGate()
    const reading = open('a/x')
    for (const ref of ['a', ...names(1_000, 'r')]) forget(ref)
    openGate()
    await reading
    expect(await open('a/x')).toEqual([['a/x']])
    expect(await open('a/x')).toEqual([])
  })

  it('is renewed together while it is in use, but for names of which there is nothing', async () => {
    const { open } = newKept()
    for (const key of ['a/x', 'a/y', 'a/no', 'b/x', 'c/x']) await open(key)
    for (const key of ['a/x', 'a/y', 'a/no']) await open(key, 400)
    expect(await open('b/x', 600)).toEqual([['a/x', 'a/y', 'b/x', 'c/x']])
    for (const key of ['a/x', 'a/y', 'b/x', 'c/x']) expect(await open(key, 1_099)).toEqual([])
    expect(await open('a/no', 1_099)).toEqual([['a/no']])
  })

  it('is renewed in parts where it is large', async () => {
    const { open } = newKept({ characters: 1_500_000 })
    for (const key of ['a/x', 'a/y', 'b/x', 'c/x', 'd/x']) await open(key)
    expect(await open('a/x', 600)).toEqual([
      ['a/x', 'a/y', 'b/x'],
      ['c/x', 'd/x'],
    ])
    const { open: openMany } = newKept({ entriesMax: 5_000 })
    for (const name of names(1_001, 'x')) await openMany(`a/${name}`)
    expect((await openMany('a/x0', 600)).map(({ length }) => length)).toEqual([1_000, 1])
  })

  it('goes once it is too much, what was read longest ago first', async () => {
    const { open } = newKept({ entriesMax: 3 })
    for (const key of ['a/x', 'b/x', 'c/x', 'a/y', 'd/x']) await open(key)
    for (const key of ['a/x', 'a/y', 'd/x']) expect(await open(key)).toEqual([])
    for (const key of ['b/x', 'c/x']) expect(await open(key)).toEqual([[key]])
  })

  it('is bounded in characters, which the names of a project share', async () => {
    const { open } = newKept({ characters: 10, charactersMax: 20 })
    for (const key of ['a/x', 'a/y', 'b/x', 'b/y', 'b/z']) await open(key)
    for (const key of ['a/x', 'a/y', 'b/x', 'b/y', 'b/z']) expect(await open(key)).toEqual([])
    await open('c/x')
    for (const key of ['b/x', 'b/y', 'b/z', 'c/x']) expect(await open(key)).toEqual([])
    expect(await open('a/x')).toEqual([['a/x']])
  })

  it('is not pushed out by names that its own or another project does not have', async () => {
    const { open } = newKept({ entriesMax: 300 })
    for (const key of ['a/x', 'b/x']) await open(key)
    for (const name of names(1_000, 'no')) expect(await open(`a/${name}`)).toHaveLength(1)
    for (const key of ['a/x', 'b/x', 'a/no999', 'a/no900']) expect(await open(key)).toEqual([])
    expect(await open('a/no899')).toEqual([['a/no899']])
  })
})

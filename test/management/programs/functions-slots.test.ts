import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { openSlots } from '../../../src/management/programs/functions/deploy-slots.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const refuse = () => new Error('too many')
const waitMs = 0

it('work keeps its slot for as long as it runs', async () => {
  const inSlot = openSlots({ max: 2, leaseMs: 10_000, waitMs })
  const work = Promise.withResolvers<string>()
  const waiting = ['a', 'a'].map((name) => inSlot(name, () => work.promise, refuse))
  for (let n = 0; n < 10; n += 1) {
    await vi.advanceTimersByTimeAsync(6_000)
    await expect(inSlot('a', async () => 'third', refuse)).rejects.toThrow('too many')
    expect(await inSlot('b', async () => 'other', refuse)).toBe('other')
  }
  work.resolve('done')
  expect(await Promise.all(waiting)).toEqual(['done', 'done'])
  expect(await inSlot('a', async () => 'third', refuse)).toBe('third')
  expect(vi.getTimerCount()).toBe(0)
})

it('the slot of a dropped request is free again when its time is over', async () => {
  const inSlot = openSlots({ max: 1, leaseMs: 10_000, waitMs })
  void inSlot('a', () => new Promise(() => {}), refuse)
  // The timers of a request are dropped with it.
  vi.clearAllTimers()
  vi.advanceTimersByTime(9_000)
  await expect(inSlot('a', async () => 'next', refuse)).rejects.toThrow('too many')
  vi.advanceTimersByTime(1_000)
  expect(await inSlot('a', async () => 'next', refuse)).toBe('next')
})

it('work waits for its turn while all slots are taken, and is refused after a long wait', async () => {
  const inSlot = openSlots({ max: 2, leaseMs: 10_000, waitMs: 1_000 })
  const works = Array.from({ length: 3 }, () => Promise.withResolvers<number>())
  let busiest = 0
  let busy = 0
  const waiting = works.map(({ promise }) =>
    inSlot(
      'a',
      async () => {
        busiest = Math.max(busiest, ++busy)
        await promise
        return --busy
      },
      refuse,
    ),
  )
  const late = expect(waiting[2]).resolves.toBe(0)
  await vi.advanceTimersByTimeAsync(500)
  expect(busy).toBe(2)
  works[0]?.resolve(0)
  await vi.advanceTimersByTimeAsync(400)
  expect(busy).toBe(2)
  const tooLate = expect(inSlot('a', async () => 'never', refuse)).rejects.toThrow('too many')
  await vi.advanceTimersByTimeAsync(1_100)
  await tooLate
  for (const { resolve } of works) resolve(0)
  await late
  expect(busiest).toBe(2)
})

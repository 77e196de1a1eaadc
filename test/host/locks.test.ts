import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { Locked, Locks } from '../../host/instances/locks.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const REF = 'a'.repeat(20)

it('keeps a lock while its holder renews it, and gives it to the next one six seconds after', async () => {
  const locks = new Locks()
  const id = await locks.take(REF, 0)
  for (let n = 0; n < 5; n++) {
    vi.advanceTimersByTime(5_000)
    locks.renew(REF, id)
    await expect(locks.take(REF, 0)).rejects.toThrow(Locked)
  }
  const next = locks.take(REF, 20_000)
  await vi.advanceTimersByTimeAsync(6_001)
  expect(await next).not.toBe(id)
  expect(() => locks.renew(REF, id)).toThrow(Locked)
  await expect(locks.under(REF, id, async () => 'worked')).rejects.toThrow('has expired')
})

it('keeps a lock whose holder died until the operation under it has ended, and no longer', async () => {
  const locks = new Locks()
  const id = await locks.take(REF, 0)
  const { promise, resolve } = Promise.withResolvers<void>()
  const working = locks.under(REF, id, () => promise)
  await vi.advanceTimersByTimeAsync(3_600_000)
  await expect(locks.take(REF, 0)).rejects.toThrow(Locked)
  resolve()
  await working
  expect(await locks.take(REF, 0)).not.toBe(id)
})

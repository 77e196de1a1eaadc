import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { releaseBuffer, reserveBuffer } from '../../../src/services/runtime/log-buffer-budget.ts'

const MIB = 1024 * 1024

it('the log lines of a project are limited for each minute, however quickly they are written', () => {
  const ref = randomUUID()
  let printed = 0
  for (let ms = 0; ms < 10 * 60_000; ms += 100) {
    if (!reserveBuffer(ref, 10_000, ms)) continue
    releaseBuffer(ref, 10_000)
    printed += 10_000
  }
  expect(printed).toBeGreaterThan(13 * MIB)
  expect(printed).toBeLessThan(14.1 * MIB)
  expect(reserveBuffer(randomUUID(), 10_000, 10 * 60_000)).toBe(true)
})

import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { claimLogRow } from '../../../src/services/runtime/refused-calls.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const rowsOf = (program: string, calls: number) =>
  Array.from({ length: calls }, () => claimLogRow(program)).filter((row) => row !== undefined)

it('the first twenty refused calls of a minute leave rows, for each program', () => {
  expect(rowsOf('a', 100)).toHaveLength(20)
  expect(rowsOf('b', 5)).toHaveLength(5)
  vi.advanceTimersByTime(59_000)
  expect(rowsOf('a', 100)).toEqual([])
  vi.advanceTimersByTime(1_000)
  expect(rowsOf('a', 100)).toHaveLength(20)
})

it('the next row has the number of calls without one', () => {
  expect(rowsOf('c', 25)).toEqual(Array.from({ length: 20 }, () => ({ unlisted: 0 })))
  vi.advanceTimersByTime(3_600_000)
  expect(rowsOf('c', 2)).toEqual([{ unlisted: 5 }, { unlisted: 0 }])
})

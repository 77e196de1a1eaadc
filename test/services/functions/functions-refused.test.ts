import { expect, it } from 'vitest'
import { claimRefusalRow } from '../../../src/services/runtime/refused-calls.ts'

const MINUTE_MS = 60_000

const rowsOf = (program: string, calls: number, now = 0) =>
  Array.from({ length: calls }, () => claimRefusalRow(program, now)).filter((row) => row !== undefined)

it('twenty refused calls at once leave rows, then twenty a minute, for each program', () => {
  expect(rowsOf('a', 100)).toHaveLength(20)
  expect(rowsOf('b', 5)).toHaveLength(5)
  expect(rowsOf('a', 100, MINUTE_MS / 2)).toHaveLength(10)
  expect(rowsOf('a', 100, MINUTE_MS)).toHaveLength(10)
  expect(rowsOf('a', 100, 60 * MINUTE_MS)).toHaveLength(20)
})

it('the next row has the number of calls without one', () => {
  expect(rowsOf('c', 25)).toEqual(Array.from({ length: 20 }, () => 0))
  expect(rowsOf('c', 2, 60 * MINUTE_MS)).toEqual([5, 0])
})

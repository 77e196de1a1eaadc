import { expect, it } from 'vitest'
import { Versions } from '../../src/services/workers/plan-versions.ts'

const version = (deploymentId: string, environment = '1') => ({ deploymentId, environment })

it('knows a version that was replaced for an old one, also when nothing of it runs any more', () => {
  const versions = new Versions()
  const first = versions.add(version('a'))
  const second = versions.add(version('b'))
  expect(second).toBeGreaterThan(first)
  expect(versions.add(version('a'))).toBe(first)
  expect(versions.orderOf(version('b'))).toBe(second)
})

it('puts what it has not seen after all others, and keeps no place for what is only asked about', () => {
  const versions = new Versions()
  const first = versions.add(version('a'))
  expect(versions.orderOf(version('a', '2'))).toBeGreaterThan(first)
  expect(versions.add(version('b'))).toBeLessThan(versions.orderOf(version('a', '2')))
})

it('forgets the oldest of many, and the order of the others stays', () => {
  const versions = new Versions()
  const orders = Array.from({ length: 1_000 }, (_, n) => versions.add(version(`${n}`)))
  expect(orders).toEqual(orders.toSorted((a, b) => a - b))
  expect(versions.orderOf(version('990'))).toBe(orders[990])
  expect(versions.orderOf(version('0'))).toBeGreaterThan(orders[999] ?? 0)
})

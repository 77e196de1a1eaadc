import { expect, it } from 'vitest'
import { Versions } from '../../../src/services/workers/plan-versions.ts'

const version = (deploymentId: string, environment = '1') => ({ deploymentId, environment })

it('a replaced version is known as old, even if nothing of it runs any more', () => {
  const versions = new Versions()
  const first = versions.add(version('a'))
  const second = versions.add(version('b'))
  expect(second).toBeGreaterThan(first)
  expect(versions.add(version('a'))).toBe(first)
  expect(versions.orderOf(version('b'))).toBe(second)
})

it('an unseen version comes after all others, and orderOf() stores nothing', () => {
  const versions = new Versions()
  const first = versions.add(version('a'))
  expect(versions.orderOf(version('a', '2'))).toBeGreaterThan(first)
  expect(versions.add(version('b'))).toBeLessThan(versions.orderOf(version('a', '2')))
})

it('the oldest of many versions are forgotten, and the others keep their order', () => {
  const versions = new Versions()
  const orders = Array.from({ length: 1_000 }, (_, n) => versions.add(version(`${n}`)))
  expect(orders).toEqual(orders.toSorted((a, b) => a - b))
  expect(versions.orderOf(version('990'))).toBe(orders[990])
  expect(versions.orderOf(version('0'))).toBeGreaterThan(orders[999] ?? 0)
})

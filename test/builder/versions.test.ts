import { expect, it } from 'vitest'
import { openVersions } from '../../src/builder/npm/versions.ts'

it('a version is chosen once for each range, so that many ranges cost little', async () => {
  const versions = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`1.${n}.0`, { dist: { tarball: '' } }]))
  let readings = 0
  const counted = new Proxy(versions, {
    ownKeys(target) {
      readings += 1
      return Reflect.ownKeys(target)
    },
  })
  const { install } = openVersions(
    {
      packument: async () => ({ 'dist-tags': {}, versions: counted }),
      package: async () => ({}) as never,
    },
    new Map([['a', new Set(Object.keys(versions).map((version) => `^${version}`))]]),
  )
  const ranges = Array.from({ length: 200 }, (_, n) => `>=1.${n % 100}.0`)
  const installed = await Promise.all(ranges.map((range) => install('a', range)))
  expect(new Set(installed.map(({ version }) => version))).toEqual(new Set(['1.99.0']))
  expect(readings).toBeLessThanOrEqual(200)
})

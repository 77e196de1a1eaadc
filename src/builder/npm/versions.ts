import semver from 'semver'
import { Problem } from '../build-problem.ts'
import { once, type Registry } from './registry.ts'
import { JSR_SCOPE, parsePackageUrl } from './specifier.ts'
import type { Package } from './tarball.ts'

export interface Installed extends Package {
  name: string
  version: string
}

/** Version ranges that the program's source names, by package. */
export type Roots = ReadonlyMap<string, ReadonlySet<string>>

/** Chooses versions. The result depends only on source and registry, not on the order of imports. */
export function openVersions(registry: Registry, roots: Roots) {
  const chosen = new Map<string, Promise<string>>()
  const preferred = new Map<string, Promise<string[]>>()

  const choose = (name: string, range: string, asRoot: boolean): Promise<string> =>
    once(chosen, `${asRoot} ${name} ${range}`, () => chooseAnew(name, range, asRoot))

  async function chooseAnew(name: string, requested: string, asRoot: boolean): Promise<string> {
    const packument = await registry.packument(name)
    if (!packument) throw new Problem(`The package ${displayName(name)} is not in its registry`)
    const range = requested || 'latest'
    const tagged = packument['dist-tags'][range]
    if (tagged && packument.versions[tagged]) return tagged
    if (semver.validRange(range) === null) throw new Problem(`${displayName(name)} has no version or tag "${range}"`)
    const known = Object.keys(packument.versions)
    const preferences = [...(asRoot ? [] : await rootVersions(name)), packument['dist-tags'].latest]
    const version =
      preferences.find((one) => one && one in packument.versions && semver.satisfies(one, range)) ??
      semver.maxSatisfying(known, range)
    if (!version) throw new Problem(`${displayName(name)} has no version that satisfies "${range}"`)
    return version
  }

  /** Versions for the ranges in the source, preferred so that a package and its peers share one copy. */
  const rootVersions = (name: string) =>
    once(preferred, name, async () => {
      const ranges = [...(roots.get(name) ?? [])]
      const versions = await Promise.all(ranges.map((range) => choose(name, range, true).catch(() => [])))
      return [...new Set(versions.flat())]
    })

  return {
    roots,
    async install(name: string, range: string, { asRoot = false } = {}): Promise<Installed> {
      const alias = range.startsWith('npm:') ? parsePackageUrl(range) : undefined
      if (!alias && /^[a-z+]+:|^[^@\s]+\/|^\.{0,2}\//i.test(range)) {
        throw new Problem(`Invalid source ${range} of ${displayName(name)}: must be a version in a registry`)
      }
      const real = alias?.name ?? name
      const version = await choose(real, alias?.range ?? range, asRoot)
      const dist = (await registry.packument(real))?.versions[version]?.dist
      if (!dist) throw new Problem(`${displayName(real)} has no version ${version}`)
      return { name: real, version, ...(await registry.package(real, version, dist)) }
    },
  }
}
export type Versions = ReturnType<typeof openVersions>

const displayName = (name: string) =>
  name.startsWith(JSR_SCOPE) ? `jsr:@${name.slice(JSR_SCOPE.length).replace('__', '/')}` : `npm:${name}`

import * as z from 'zod'
import { SizedCache } from '../../platform/sized-cache.ts'
import type { Network } from '../build-network.ts'
import { Problem, Unavailable } from '../build-problem.ts'
import { CACHE_LIMITS, LIMITS } from '../limits.ts'
import type { Settings } from '../settings.ts'
import { checkIntegrity, Dist } from './integrity.ts'
import { JSR_SCOPE } from './specifier.ts'
import { type Package, unpack } from './tarball.ts'

const Packument = z.object({
  'dist-tags': z.record(z.string(), z.string()).default({}),
  versions: z.record(z.string(), z.object({ dist: Dist })).default({}),
})
export type Packument = z.output<typeof Packument>

const packuments = new SizedCache<Packument>({ sizeMax: CACHE_LIMITS.metadataBytes, ms: CACHE_LIMITS.metadataMs })
const packages = new SizedCache<Package>({ sizeMax: CACHE_LIMITS.packageBytes })

/** Registries for one build: fetches each package once, within the limits. */
export function openRegistry(network: Network, settings: Settings) {
  const metadata = new Map<string, Promise<Packument | undefined>>()
  const contents = new Map<string, Promise<Package>>()

  let unpackedBytes = 0

  function addUnpacked(bytes: number): void {
    unpackedBytes += bytes
    if (unpackedBytes <= LIMITS.unpackedBytes) return
    throw new Problem(`The imported packages unpack to more than ${LIMITS.unpackedBytes / 1024 ** 2} MiB`)
  }

  const registryOf = (name: string) =>
    (name.startsWith(JSR_SCOPE) ? settings.JSR_REGISTRY_URL : settings.NPM_REGISTRY_URL).replace(/\/$/, '')

  async function fetchPackument(name: string): Promise<Packument | undefined> {
    const url = `${registryOf(name)}/${name.replace('/', '%2f')}`
    const known = packuments.get(url)
    if (known) return known
    const accept = 'application/vnd.npm.install-v1+json, application/json;q=0.9'
    const fetched = await network.get(url, { accept, bytesMax: LIMITS.metadataBytes, fromRegistry: true })
    if (!fetched) return undefined
    const packument = parsePackument(url, fetched.bytes)
    packuments.set(url, packument, fetched.bytes.byteLength)
    return packument
  }

  async function fetchPackage(name: string, version: string, dist: Dist): Promise<Package> {
    const key = `${registryOf(name)} ${name}@${version} ${dist.integrity ?? dist.shasum}`
    const known = packages.get(key)
    if (known) {
      addUnpacked(known.bytes)
      return known
    }
    const fetched = await network.get(dist.tarball, { bytesMax: LIMITS.tarballBytes, fromRegistry: true })
    if (!fetched)
      throw new Unavailable(`The registry lists ${name}@${version} but does not have its tarball ${dist.tarball}`)
    await checkIntegrity(`${name}@${version}`, fetched.bytes, dist)
    const unpacked = await unpack(`${name}@${version}`, fetched.bytes, addUnpacked)
    packages.set(key, unpacked, unpacked.bytes)
    return unpacked
  }

  return {
    packument: (name: string) => once(metadata, name, () => fetchPackument(name)),
    package(name: string, version: string, dist: Dist): Promise<Package> {
      return once(contents, `${name}@${version}`, () => {
        if (contents.size >= LIMITS.packages)
          throw new Problem(`The program imports more than ${LIMITS.packages} packages`)
        return fetchPackage(name, version, dist)
      })
    },
  }
}
export type Registry = ReturnType<typeof openRegistry>

function parsePackument(url: string, bytes: Uint8Array): Packument {
  try {
    return Packument.parse(JSON.parse(new TextDecoder().decode(bytes)))
  } catch {
    throw new Unavailable(`Invalid registry response from ${url}: must be package metadata`)
  }
}

/** Makes a value once for each key. */
export function once<T>(cache: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  const known = cache.get(key)
  if (known) return known
  const promise = make()
  cache.set(key, promise)
  return promise
}

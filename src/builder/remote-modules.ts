import { SizedCache } from '../platform/sized-cache.ts'
import type { Fetched, Network } from './build-network.ts'
import { Problem } from './build-problem.ts'
import { CACHE_LIMITS, LIMITS } from './limits.ts'
import { once } from './npm/registry.ts'

const cache = new SizedCache<Fetched>({ sizeMax: CACHE_LIMITS.remoteBytes, ms: CACHE_LIMITS.metadataMs })

/** Fetches modules that are imported by their address, each at most once per build. */
export function openRemote(network: Network) {
  const modules = new Map<string, Promise<Fetched>>()

  async function fetchModule(url: string): Promise<Fetched> {
    const known = cache.get(url)
    if (known) return known
    const fetched = await network.get(url, { bytesMax: LIMITS.remoteModuleBytes })
    if (!fetched) throw new Problem(`No module found at ${url}`)
    if (/^text\/html\b/.test(fetched.contentType)) throw new Problem(`${url} is a web page, not a module`)
    cache.set(url, fetched, fetched.bytes.byteLength)
    return fetched
  }

  return {
    get({ href }: URL): Promise<Fetched> {
      const url = href.replace(/#.*$/, '')
      return once(modules, url, () => {
        if (modules.size >= LIMITS.remoteModules)
          throw new Problem(`The program imports more than ${LIMITS.remoteModules} modules by address`)
        return fetchModule(url)
      })
    },
  }
}
export type Remote = ReturnType<typeof openRemote>

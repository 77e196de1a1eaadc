import type { Fetched, Network } from './build-network.ts'
import { Problem } from './build-problem.ts'
import { openCache } from './cache.ts'
import { KEPT, LIMITS } from './limits.ts'

const kept = openCache<Fetched>({ bytesMax: KEPT.remoteBytes, ms: KEPT.metadataMs })

/** Modules that are imported by their address, each fetched once a build. */
export function openRemote(network: Network) {
  const modules = new Map<string, Promise<Fetched>>()

  async function fetchModule(url: string): Promise<Fetched> {
    const known = kept.get(url)
    if (known) return known
    const fetched = await network.get(url, { bytesMax: LIMITS.remoteModuleBytes })
    if (!fetched) throw new Problem(`There is no module at ${url}`)
    if (/^text\/html\b/.test(fetched.contentType)) throw new Problem(`${url} is a web page and no module`)
    kept.set(url, fetched, fetched.bytes.byteLength)
    return fetched
  }

  return {
    get({ href }: URL): Promise<Fetched> {
      const url = href.replace(/#.*$/, '')
      const known = modules.get(url)
      if (known) return known
      if (modules.size >= LIMITS.remoteModules)
        throw new Problem(`More than ${LIMITS.remoteModules} modules are imported`)
      const module = fetchModule(url)
      modules.set(url, module)
      return module
    },
  }
}
export type Remote = ReturnType<typeof openRemote>

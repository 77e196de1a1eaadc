import type { HostApi, HostDescription } from './client.ts'

const CACHE_MS = 30_000

/** Caches the hosts' descriptions. While a host does not answer, its last description is used. */
export function hostDescriptions() {
  const byHost = new Map<string, { description: HostDescription; until: number }>()

  /** The current description; rejects if the host does not answer. */
  async function refresh(api: HostApi): Promise<HostDescription> {
    const description = await api.describe()
    byHost.set(api.host.id, { description, until: Date.now() + CACHE_MS })
    return description
  }

  /** The current description, or the last one if the host does not answer. */
  const refreshOrLast = (api: HostApi): Promise<HostDescription> =>
    refresh(api).catch((error) => {
      const last = byHost.get(api.host.id)
      if (!last) throw error
      // Each request would otherwise wait for the host.
      last.until = Date.now() + CACHE_MS
      return last.description
    })

  return {
    refresh,
    refreshOrLast,
    async get(api: HostApi): Promise<HostDescription> {
      const cached = byHost.get(api.host.id)
      if (cached && cached.until > Date.now()) return cached.description
      return refreshOrLast(api)
    },
    /** The cached descriptions of all hosts. */
    all: (): HostDescription[] => Array.from(byHost.values(), ({ description }) => description),
  }
}

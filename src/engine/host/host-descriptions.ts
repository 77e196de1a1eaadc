import type { HostApi, HostFacts } from './client.ts'

const KEPT_MS = 30_000

/** Caches the hosts' descriptions. While a host does not answer, its last description is used. */
export function keepFacts() {
  const byHost = new Map<string, { facts: HostFacts; until: number }>()

  /** The current description; rejects if the host does not answer. */
  async function ask(api: HostApi): Promise<HostFacts> {
    const facts = await api.facts()
    byHost.set(api.host.id, { facts, until: Date.now() + KEPT_MS })
    return facts
  }

  /** The current description, or the last one if the host does not answer. */
  const now = (api: HostApi): Promise<HostFacts> =>
    ask(api).catch((error) => byHost.get(api.host.id)?.facts ?? Promise.reject(error))

  return {
    ask,
    now,
    async of(api: HostApi): Promise<HostFacts> {
      const found = byHost.get(api.host.id)
      if (found && found.until > Date.now()) return found.facts
      return now(api)
    },
    /** The cached descriptions of all hosts. */
    known: (): HostFacts[] => Array.from(byHost.values(), ({ facts }) => facts),
  }
}

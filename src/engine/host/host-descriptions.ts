import type { HostApi, HostFacts } from './client.ts'

const KEPT_MS = 30_000

/** Caches the hosts' descriptions of themselves. A host that falls silent keeps its last one. */
export function keepFacts() {
  const byHost = new Map<string, { facts: HostFacts; until: number }>()

  /** As it is now; rejects where the host does not answer. */
  async function ask(api: HostApi): Promise<HostFacts> {
    const facts = await api.facts()
    byHost.set(api.host.id, { facts, until: Date.now() + KEPT_MS })
    return facts
  }

  /** As it is now, or its last word. */
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
    /** Of all hosts that have been asked. */
    known: (): HostFacts[] => Array.from(byHost.values(), ({ facts }) => facts),
  }
}

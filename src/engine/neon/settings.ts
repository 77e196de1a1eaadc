import { type Cluster, withAdmin } from '../session.ts'
import {
  configure,
  type DatabaseSettings,
  effectiveSettings,
  isReadOnly,
  type Place,
  SettingsRefused,
  setReadOnly,
} from '../settings.ts'

interface Reach {
  clusterOf(ref: string): Promise<Cluster>
  /** As Neon has it; undefined for a project that is not there. */
  sizeOf(ref: string): Promise<number | undefined>
}

/** Each project's are in a cluster of its own. */
export function neonSettings({ clusterOf, sizeOf }: Reach): DatabaseSettings {
  const inCluster = async <Value>(ref: string, work: (place: Place) => Promise<Value>) => {
    const cluster = await clusterOf(ref)
    return withAdmin(cluster, (admin) => work({ admin, names: cluster.names, driver: 'neon' }))
  }
  return {
    configure: (ref, configuration) => inCluster(ref, (place) => configure(place, configuration)),
    effective: async (ref) => effectiveSettings(await clusterOf(ref)),
    setReadOnly: (ref, readOnly) => inCluster(ref, ({ admin, names }) => setReadOnly(admin, names, readOnly)),
    // A database that cannot be asked counts as writable: closing it then fails with the reason.
    async readOnlyAmong(refs) {
      const closed = await answers(refs, async (ref) =>
        (await inCluster(ref, ({ admin, names }) => isReadOnly(admin, names))) ? [ref] : [],
      )
      return new Set(closed.flat())
    },
    // Neon demands TLS of all, whether a project does or not; its proxy stands between, so Postgres is not told from
    // where a session comes.
    setLoginRules: async (_, { networks }) => {
      if (networks)
        throw new SettingsRefused([{ setting: 'dbAllowedCidrs', reason: 'cannot be checked by the driver neon' }])
    },
    async sizesOf(refs) {
      const sizes = await answers(refs, async (ref) => [ref, await sizeOf(ref)] as const)
      return new Map(sizes.filter((size): size is [string, number] => size[1] !== undefined))
    },
    // No disk of Neon's ever fills up, and there is no asking for the sizes of all.
    sizesFrom: async () => new Map(),
  }
}

async function answers<Answer>(refs: readonly string[], ask: (ref: string) => Promise<Answer>): Promise<Answer[]> {
  const asked = await Promise.allSettled(refs.map(ask))
  return asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
}

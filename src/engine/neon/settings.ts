import { fulfilled } from '../fulfilled.ts'
import { type Cluster, withAdmin } from '../session.ts'
import {
  type ConfigurationTarget,
  configure,
  type DatabaseSettings,
  effectiveSettings,
  isReadOnly,
  SettingsRefused,
  setReadOnly,
} from '../settings.ts'

interface Reach {
  clusterOf(ref: string): Promise<Cluster>
  restart(ref: string): Promise<void>
  /** The size that Neon reports; undefined if the project does not exist. */
  sizeOf(ref: string): Promise<number | undefined>
}

/** Settings of a project's cluster. */
export function neonSettings({ clusterOf, restart, sizeOf }: Reach): DatabaseSettings {
  const withCluster = async <Value>(ref: string, work: (target: ConfigurationTarget) => Promise<Value>) => {
    const cluster = await clusterOf(ref)
    return withAdmin(cluster, (admin) => work({ admin, names: cluster.names, driver: 'neon' }))
  }
  return {
    async configure(ref, configuration) {
      await withCluster(ref, (target) => configure(target, configuration))
      if (configuration.restart) await restart(ref)
    },
    listEffective: async (ref) => effectiveSettings(await clusterOf(ref)),
    setReadOnly: (ref, readOnly) => withCluster(ref, ({ admin, names }) => setReadOnly(admin, names, readOnly)),
    // A database that does not answer counts as writable: making it read-only then fails with the reason.
    async filterReadOnly(refs) {
      const isClosed = (ref: string) => withCluster(ref, ({ admin, names }) => isReadOnly(admin, names))
      return new Set((await fulfilled(refs.map(async (ref) => ((await isClosed(ref)) ? [ref] : [])))).flat())
    },
    // Neon always requires TLS. Its proxy hides the client addresses from Postgres.
    setLoginRules: async (_, { networks }) => {
      if (networks)
        throw new SettingsRefused([{ setting: 'dbAllowedCidrs', reason: 'cannot be checked by the driver neon' }])
    },
    async sizesOf(refs) {
      const sizes = await fulfilled(refs.map(async (ref) => [ref, await sizeOf(ref)] as const))
      return new Map(sizes.filter((size): size is [string, number] => size[1] !== undefined))
    },
    // Neon's disks do not fill up, and its API cannot list the sizes of all projects.
    sizesAtLeast: async () => new Map(),
  }
}

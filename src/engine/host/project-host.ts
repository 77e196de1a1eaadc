import { driverState, type EngineStates } from '../driver-states.ts'
import { EngineRefusal } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { fulfilled } from '../fulfilled.ts'
import type { Cluster } from '../session.ts'
import { type Call, type Feature, type HostApi, hostApi, Instance } from './client.ts'
import type { ClientAddress, HostAddress, HostDirectory } from './directory.ts'
import { hostDescriptions } from './host-descriptions.ts'
import { HOST_NAMES } from './names.ts'

const SUPERUSER = 'supabase_admin'

/** Driver state stored with a project. */
export interface HostState {
  /** Id of the project's host. */
  host: string
  /** The host's address for clients; absent for the host of the settings. */
  at?: ClientAddress
  replicas?: { identifier: string; isReady: boolean; hasFailed?: boolean | undefined }[]
}

export interface HostEngineConfig {
  hosts: HostDirectory
  states: EngineStates<HostState>
  /** Part of `preparation` that changes with the plans' settings, so that existing projects are updated. */
  plans?: string
  /** Runs a removal of databases or archives, unless removals are suspended. */
  withRemovalLock?: <Value>(remove: () => Promise<Value>) => Promise<Value>
  /** Fetcher for requests to the hosts; absent = the global `fetch`. */
  egress?: Fetcher | undefined
}

export type HostAccess = ReturnType<typeof hostAccess>

/** The state to store with a project on this host. */
export function hostState({ hosts }: Pick<HostAccess, 'hosts'>, { host }: HostApi): HostState {
  const { id, databaseHost, databasePort, databaseDomain } = host
  const at = { databaseHost, databasePort, ...(databaseDomain !== undefined && { databaseDomain }) }
  return { host: id, ...(host === hosts.local ? {} : { at }) }
}

/** Access to a project through its host's API, and to its database as a trusted client of the host. */
export function hostAccess({ hosts, states, egress, withRemovalLock = (remove) => remove() }: HostEngineConfig) {
  const apiAt = (host: HostAddress) => hostApi(host, egress)
  const descriptions = hostDescriptions()
  const featuresOf = async (api: HostApi) => (await descriptions.get(api)).features

  return {
    hosts,
    withRemovalLock,
    apiAt,
    descriptions,
    async api(ref: string): Promise<HostApi> {
      const api = apiAt(await hosts.of(ref))
      // Fills the cache that `mayOffer` reads.
      featuresOf(api).catch(() => {})
      return api
    },
    async apis(): Promise<HostApi[]> {
      return (await hosts.all()).map(apiAt)
    },
    async getInstance(ref: string, query = '') {
      return (await this.api(ref)).ask(Instance, { method: 'GET', path: `/instances/${ref}${query}` })
    },
    /** The replies of all hosts that answer; rejects if none does. */
    async askAllHosts<Value>(work: (api: HostApi) => Promise<Value>): Promise<Value[]> {
      const requests = (await this.apis()).map(work)
      const values = await fulfilled(requests)
      return values.length > 0 ? values : Promise.all(requests)
    },
    /** Stores the host on which a project is about to be created. */
    async storeHost(ref: string, api: HostApi): Promise<void> {
      await states.write(ref, { ...(await states.read(ref)), ...hostState(this, api) })
      hosts.cacheHost(ref, api.host.id)
    },
    isLocal: (engineState: unknown): boolean =>
      hosts.local !== undefined && driverState<HostState>(engineState)?.at === undefined,
    addressOf(engineState: unknown): ClientAddress {
      const { at = hosts.local } = driverState<HostState>(engineState) ?? {}
      return at ?? { databaseHost: '', databasePort: 5432 }
    },
    hasFeature: async (api: HostApi, feature: Feature): Promise<boolean> => (await featuresOf(api)).includes(feature),
    async requireFeature(ref: string, feature: Feature): Promise<HostApi> {
      const api = apiAt(await hosts.of(ref))
      if ((await featuresOf(api)).includes(feature)) return api
      throw new EngineRefusal(`the database host ${api.host.id} does not offer ${feature}`)
    },
    /** Changes a project's instance under its lock. The host is looked up again, because the project may have moved since it was cached. */
    async changeInstance(ref: string, fence: Fence | undefined, call: Call): Promise<void> {
      hosts.cacheHost(ref, undefined)
      await (await this.api(ref)).change(ref, fence, call)
    },
    /** Whether a host offers the feature; true while no description is cached. */
    mayOffer(feature: Feature): boolean {
      const known = descriptions.all()
      return known.length === 0 || known.some(({ features }) => features.includes(feature))
    },
    async clusterOf(ref: string): Promise<Cluster> {
      const { url, key } = await hosts.of(ref)
      return {
        names: HOST_NAMES,
        adminUrl: `postgresql://${SUPERUSER}@${new URL(url).host}/${HOST_NAMES.database}`,
        userOf: (role) => `${role}.${ref}`,
        proxy: url,
        egress,
        key,
      }
    },
  }
}

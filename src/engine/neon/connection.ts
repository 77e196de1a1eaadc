import type { EndpointUpdateRequest } from '@neondatabase/api-client'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { databaseMissing, Superseded } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { projectNames } from '../names.ts'
import type { Cluster } from '../session.ts'
import { isNotFound, type NeonAccount, type NeonApi, neonApi } from './api.ts'
import { ADMIN } from './prepare.ts'
import { ignoreNotFound } from './projects.ts'
import type { NeonState, NeonStates, Site, Sites } from './sites.ts'

export interface NeonEngineConfig extends NeonAccount {
  postgresMajor: number
  states: NeonStates
  /** Base URL of a Neon-compatible proxy that stands in for Neon's own. */
  proxy?: string | undefined
  egress?: Fetcher | undefined
}

export interface Neon {
  config: NeonEngineConfig
  api: NeonApi
  sites: Sites
}

const PASSWORDS_MAX = 5_000
/** Administrator passwords by host. */
const passwords = new BoundedMap<string, string>(PASSWORDS_MAX)

export function clusterAt(
  { api, config: { proxy, egress } }: Neon,
  ref: string,
  { projectId, branchId, host }: Site,
): Cluster {
  return {
    names: projectNames(ref),
    adminUrl: `postgresql://${ADMIN}@${host}/${ADMIN}`,
    async adminPassword() {
      const cached = passwords.get(host)
      if (cached !== undefined) return cached
      const query = { branch_id: branchId, database_name: ADMIN, role_name: ADMIN }
      const { uri } = await api.connectionUri(projectId, query)
      return cachePassword(host, decodeURIComponent(new URL(uri).password))
    },
    forgetAdminPassword: () => passwords.delete(host),
    plainPasswords: true,
    administrator: ADMIN,
    proxy,
    egress,
  }
}

export function cachePassword(host: string, password: string): string {
  passwords.set(host, password)
  return password
}

/** One operation on a project. There is no lock, so it checks its fence before every change. */
export interface Work extends Neon {
  ref: string
  checkFence(): Promise<void>
  saveState(state: NeonState | undefined): Promise<void>
}

export async function startWork(neon: Neon, ref: string, fence: Fence | undefined): Promise<Work> {
  const checkFence = async () => {
    if (fence && !(await fence())) throw new Superseded(`another caller has taken over ${ref}`)
  }
  await checkFence()
  return {
    ...neon,
    ref,
    checkFence,
    api: neonApi(neon.config, checkFence),
    async saveState(state) {
      await checkFence()
      await neon.sites.write(ref, state)
    },
  }
}

export async function setEndpointsEnabled(work: Work, enabled: boolean): Promise<void> {
  const { sites, ref } = work
  const site = enabled ? await sites.require(ref) : await sites.find(ref)
  if (site) await updateEndpoints(work, site, { disabled: !enabled })
}

/** Updates the endpoint of a project and those of its read replicas. */
export async function updateEndpoints(
  { api, sites, ref }: Work,
  { projectId, endpointId }: Site,
  endpoint: EndpointUpdateRequest['endpoint'],
): Promise<void> {
  const { operations } = await api.updateEndpoint(projectId, endpointId, { endpoint }).catch(throwIfMissing)
  await api.waitForOperations(operations)
  for (const replica of (await sites.read(ref))?.replicas ?? []) {
    const updated = await ignoreNotFound(api.updateEndpoint(projectId, replica.endpointId, { endpoint }))
    await api.waitForOperations(updated?.operations ?? [])
  }
}

export function throwIfMissing(error: unknown): never {
  throw isNotFound(error) ? databaseMissing(error) : error
}

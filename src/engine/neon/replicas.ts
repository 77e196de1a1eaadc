import type { Endpoint } from '@neondatabase/api-client'
import { databaseMissing } from '../engine.ts'
import { DONE, hasFailed, type NeonApi, OperationFailed, refused } from './api.ts'
import type { NeonReplica, NeonState, Site, Sites } from './locations.ts'
import { unlessGone } from './projects.ts'

interface Work {
  ref: string
  api: NeonApi
  sites: Sites
  note(state: NeonState): Promise<void>
}

/** The cast avoids bundling the client package for one constant. */
const READ_ONLY = 'read_only' as Endpoint['type']

/** Creates a replica, or finds it by name after a lost answer or a crash. Removes a failed one for the next attempt. */
export async function addReplica(work: Work, identifier: string): Promise<void> {
  const { api, ref, sites, note } = work
  const { state, site } = await noted(sites, ref)
  const others = (state.replicas ?? []).filter((each) => each.identifier !== identifier)
  const endpoint = await endpointOf(api, site, identifier)
  const begun = endpoint && (await unfinished(api, endpoint))
  if (begun?.some(hasFailed)) {
    await removeReplica(work, identifier)
    throw new OperationFailed('Neon could not create the replica')
  }
  const made =
    endpoint && begun
      ? { endpoint, operations: begun }
      : await api
          .createEndpoint(site.projectId, { branch_id: site.branchId, type: READ_ONLY, name: identifier })
          .catch(refused)
  const replica = { identifier, endpointId: made.endpoint.id, host: made.endpoint.host }
  await note({ ...state, replicas: [...others, { ...replica, isReady: false }] })
  await api.finished(made.operations)
  await note({ ...state, replicas: [...others, { ...replica, isReady: true }] })
}

export async function removeReplica({ api, ref, sites, note }: Work, identifier: string): Promise<void> {
  const { state, site } = await noted(sites, ref)
  const isIt = (replica: NeonReplica) => replica.identifier === identifier
  const found = await endpointOf(api, site, identifier)
  const ids = new Set([
    ...(state.replicas ?? []).filter(isIt).map(({ endpointId }) => endpointId),
    ...(found ? [found.id] : []),
  ])
  for (const endpointId of ids) {
    const deleted = await unlessGone(api.deleteEndpoint(site.projectId, endpointId))
    await api.finished(deleted?.operations ?? [])
  }
  await note({ ...state, replicas: (state.replicas ?? []).filter((each) => !isIt(each)) })
}

async function noted(sites: Sites, ref: string): Promise<{ state: NeonState; site: Site }> {
  const state = await sites.read(ref)
  if (!state?.site) throw databaseMissing()
  return { state, site: state.site }
}

async function endpointOf(api: NeonApi, { projectId, branchId }: Site, identifier: string) {
  const { endpoints } = await api.listEndpoints(projectId)
  return endpoints.find(
    ({ branch_id, name, type }) => branch_id === branchId && type === READ_ONLY && name === identifier,
  )
}

async function unfinished(api: NeonApi, { id, project_id: projectId }: Endpoint) {
  const { operations } = await api.listOperations(projectId)
  return operations.filter(({ endpoint_id, status }) => endpoint_id === id && !DONE.includes(status))
}

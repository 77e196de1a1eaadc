import type { Endpoint } from '@neondatabase/api-client'
import { databaseMissing } from '../engine-errors.ts'
import { hasFailed, type NeonApi, OperationFailed, SUCCEEDED_STATUSES, throwRefusal } from './api.ts'
import type { Work } from './connection.ts'
import { ignoreNotFound } from './projects.ts'
import type { NeonReplica, NeonState, Site, Sites } from './sites.ts'

/** The cast avoids bundling the client package for one constant. */
const READ_ONLY = 'read_only' as Endpoint['type']

/**
 * Creates a replica with the size of its primary, or finds it by name after a lost answer or a crash. Removes a failed one for
 * the next attempt.
 */
export async function addReplica(work: Work, identifier: string): Promise<void> {
  const { api, ref, sites, saveState } = work
  const { state, site } = await requireState(sites, ref)
  const others = (state.replicas ?? []).filter((each) => each.identifier !== identifier)
  const { primary, replica: endpoint } = await findEndpoints(api, site, identifier)
  if (!primary) throw databaseMissing()
  const operations = endpoint && (await unfinishedOperations(api, endpoint))
  if (operations?.some(hasFailed)) {
    await removeReplica(work, identifier)
    throw new OperationFailed('Neon could not create the replica')
  }
  const { autoscaling_limit_min_cu, autoscaling_limit_max_cu } = primary
  const limits = { autoscaling_limit_min_cu, autoscaling_limit_max_cu }
  const wanted = { branch_id: site.branchId, type: READ_ONLY, name: identifier, ...limits }
  const created =
    endpoint && operations
      ? { endpoint, operations }
      : await api.createEndpoint(site.projectId, { endpoint: wanted }).catch(throwRefusal)
  const replica = { identifier, endpointId: created.endpoint.id, host: created.endpoint.host }
  await saveState({ ...state, replicas: [...others, { ...replica, isReady: false }] })
  await api.waitForOperations(created.operations)
  await saveState({ ...state, replicas: [...others, { ...replica, isReady: true }] })
}

export async function removeReplica({ api, ref, sites, saveState }: Work, identifier: string): Promise<void> {
  const { state, site } = await requireState(sites, ref)
  const isRemoved = (replica: NeonReplica) => replica.identifier === identifier
  const { replica: found } = await findEndpoints(api, site, identifier)
  const ids = new Set([
    ...(state.replicas ?? []).filter(isRemoved).map(({ endpointId }) => endpointId),
    ...(found ? [found.id] : []),
  ])
  for (const endpointId of ids) {
    const deleted = await ignoreNotFound(api.deleteEndpoint(site.projectId, endpointId))
    await api.waitForOperations(deleted?.operations ?? [])
  }
  await saveState({ ...state, replicas: (state.replicas ?? []).filter((each) => !isRemoved(each)) })
}

async function requireState(sites: Sites, ref: string): Promise<{ state: NeonState; site: Site }> {
  const state = await sites.read(ref)
  if (!state?.site) throw databaseMissing()
  return { state, site: state.site }
}

async function findEndpoints(api: NeonApi, { projectId, branchId, endpointId }: Site, identifier: string) {
  const { endpoints } = await api.listEndpoints(projectId)
  const isReplica = ({ branch_id, name, type }: Endpoint) =>
    branch_id === branchId && type === READ_ONLY && name === identifier
  return { primary: endpoints.find(({ id }) => id === endpointId), replica: endpoints.find(isReplica) }
}

async function unfinishedOperations(api: NeonApi, { id, project_id: projectId }: Endpoint) {
  const { operations } = await api.listOperations(projectId)
  return operations.filter(({ endpoint_id, status }) => endpoint_id === id && !SUCCEEDED_STATUSES.includes(status))
}

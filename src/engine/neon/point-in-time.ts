import type { Operation } from '@neondatabase/api-client'
import type { PointInTime, PointInTimeRequest } from '../engine.ts'
import { disableLogins } from '../logins.ts'
import { withAdmin } from '../session.ts'
import { hasFailed, type NeonApi, NeonFailure, SUCCEEDED_STATUSES, throwRefusal } from './api.ts'
import { clusterAt, type Neon, setEndpointsEnabled, startWork, throwIfMissing } from './connection.ts'
import { readyState } from './lifecycle.ts'
import { neonLogins } from './logins.ts'
import { prepareDatabase } from './prepare.ts'
import { branchesNamed, operationsOf, preservedBranchName } from './projects.ts'
import type { Site } from './sites.ts'

/** Restores from Neon's own history. */
export const neonHistory = (neon: Neon): PointInTime => ({
  /** The window of the history, which does not begin before the database was ready. */
  async window(ref, now) {
    const { projectId } = await neon.sites.require(ref)
    const { project } = await neon.api.getProject(projectId).catch(throwIfMissing)
    const { readySince } = (await neon.sites.read(ref)) ?? {}
    const historyStart = now.getTime() - project.history_retention_seconds * 1_000
    return { earliest: new Date(Math.max(historyStart, readySince ? Date.parse(readySince) : 0)), latest: now }
  },
  async begin(request, fence) {
    const { api, sites, ref } = await startWork(neon, request.ref, fence)
    await beginRestore(api, await sites.require(ref), request).catch(throwIfMissing)
  },
  async finish(request, fence) {
    const work = await startWork(neon, request.ref, fence)
    const { api, sites, ref } = work
    const state = await sites.read(ref)
    const site = await sites.require(ref)
    await finishRestore(api, site, request).catch(throwIfMissing)
    // The endpoint of a project that could not be resumed is still disabled.
    await setEndpointsEnabled(work, true)
    const cluster = clusterAt(neon, ref, site)
    const roles = await withAdmin(cluster, disableLogins)
    await prepareDatabase(cluster, request)
    const logins = neonLogins({ clusterOf: async () => cluster, exists: async () => true })
    await logins.end(ref, roles, async () => request.password)
    if (state) await work.saveState({ ...state, ...readyState() })
  },
})

/** Starts the restore unless it was started: the branch that Neon keeps carries the restore's id in its name. */
async function beginRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
  if (await findPreserved(api, site, request)) return
  const { projectId, branchId } = site
  const source = { source_branch_id: branchId, source_timestamp: request.at.toISOString() }
  const body = { ...source, preserve_under_name: preservedBranchName(request.ref, request.id) }
  await api.restoreBranch(projectId, branchId, body).catch(throwRefusal)
}

/** Waits for the restore. Repeats a failed one from the kept branch: the branch itself may be partly restored. */
async function finishRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
  await api.waitForOperations(await pendingOperations(api, site, request))
}

async function pendingOperations(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<readonly Operation[]> {
  const operations = await operationsOf(api, site)
  const [latest] = operations
  if (!latest || !hasFailed(latest)) {
    return operations.filter((each) => !SUCCEEDED_STATUSES.includes(each.status) && !hasFailed(each)).reverse()
  }
  const preserved = await findPreserved(api, site, request)
  if (!preserved) throw new NeonFailure('Neon has not preserved the state before the restore')
  const { projectId, branchId } = site
  const source = { source_branch_id: preserved.id, source_timestamp: request.at.toISOString() }
  return (await api.restoreBranch(projectId, branchId, source)).operations
}

async function findPreserved(api: NeonApi, { projectId }: Site, { ref, id }: PointInTimeRequest) {
  return (await branchesNamed(api, projectId, preservedBranchName(ref, id)))[0]
}

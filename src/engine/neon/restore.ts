import type { Operation } from '@neondatabase/api-client'
import type { PointInTimeRequest } from '../engine.ts'
import { hasFailed, type NeonApi, NeonFailure, SUCCEEDED_STATUSES, throwRefusal } from './api.ts'
import { branchesNamed, operationsOf, preservedBranchName } from './projects.ts'
import type { Site } from './sites.ts'

/** Starts the restore unless it was started: the branch that Neon keeps carries the restore's id in its name. */
export async function beginRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
  if (await findPreserved(api, site, request)) return
  const { projectId, branchId } = site
  const source = { source_branch_id: branchId, source_timestamp: request.at.toISOString() }
  const body = { ...source, preserve_under_name: preservedBranchName(request.ref, request.id) }
  await api.restoreBranch(projectId, branchId, body).catch(throwRefusal)
}

/** Waits for the restore. Repeats a failed one from the kept branch: the branch itself may be partly restored. */
export async function finishRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
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
  const name = preservedBranchName(ref, id)
  return (await branchesNamed(api, projectId, name)).find((branch) => branch.name === name)
}

import type { Operation } from '@neondatabase/api-client'
import type { PointInTimeRequest } from '../engine.ts'
import { DONE, hasFailed, type NeonApi, NeonFailure, refused } from './api.ts'
import type { Site } from './locations.ts'
import { branchesNamed, keptName, operationsOf } from './projects.ts'

/** Starts the restore unless it was started: the branch that Neon keeps carries the restore's id in its name. */
export async function beginRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
  if (await keptOf(api, site, request)) return
  const { projectId, branchId } = site
  const source = { source_branch_id: branchId, source_timestamp: request.at.toISOString() }
  const body = { ...source, preserve_under_name: keptName(request.ref, request.id) }
  await api.restoreBranch(projectId, branchId, body).catch(refused)
}

/** Waits for the restore. Repeats a failed one from the kept branch: the branch itself may be partly restored. */
export async function finishRestore(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<void> {
  await api.finished(await underWay(api, site, request))
}

async function underWay(api: NeonApi, site: Site, request: PointInTimeRequest): Promise<readonly Operation[]> {
  const operations = await operationsOf(api, site)
  const [latest] = operations
  if (!latest || !hasFailed(latest)) {
    return operations.filter((each) => !DONE.includes(each.status) && !hasFailed(each)).reverse()
  }
  const kept = await keptOf(api, site, request)
  if (!kept) throw new NeonFailure('Neon has not kept the state before the restore')
  const { projectId, branchId } = site
  const source = { source_branch_id: kept.id, source_timestamp: request.at.toISOString() }
  return (await api.restoreBranch(projectId, branchId, source)).operations
}

async function keptOf(api: NeonApi, { projectId }: Site, { ref, id }: PointInTimeRequest) {
  const name = keptName(ref, id)
  return (await branchesNamed(api, projectId, name)).find((branch) => branch.name === name)
}

import type { PointInTimeRequest, ProjectSpec } from '../engine.ts'
import type { Fence } from '../fence.ts'
import { disableLogins } from '../logins.ts'
import { withAdmin } from '../session.ts'
import { clusterAt, type Neon, startWork, throwIfMissing } from './connection.ts'
import { readyState } from './lifecycle.ts'
import { neonLogins } from './logins.ts'
import { prepareDatabase } from './prepare.ts'
import { beginRestore, finishRestore } from './restore.ts'

/** The window of Neon's history, which does not begin before the database was ready. */
export async function restoreWindow({ api, sites }: Neon, ref: string, now: Date) {
  const { projectId } = await sites.require(ref)
  const { project } = await api.getProject(projectId).catch(throwIfMissing)
  const { readySince } = (await sites.read(ref)) ?? {}
  const historyStart = now.getTime() - project.history_retention_seconds * 1_000
  return { earliest: new Date(Math.max(historyStart, readySince ? Date.parse(readySince) : 0)), latest: now }
}

export async function beginPointInTimeRestore(neon: Neon, request: PointInTimeRequest, fence?: Fence): Promise<void> {
  const { api, sites, ref } = await startWork(neon, request.ref, fence)
  await beginRestore(api, await sites.require(ref), request).catch(throwIfMissing)
}

/**
 * Waits for the restore, sets passwords and ends temporary logins: the restore brought back old roles and passwords.
 */
export async function finishPointInTimeRestore(
  neon: Neon,
  request: PointInTimeRequest & ProjectSpec,
  fence?: Fence,
): Promise<void> {
  const work = await startWork(neon, request.ref, fence)
  const { api, sites, ref } = work
  const state = await sites.read(ref)
  const site = await sites.require(ref)
  await finishRestore(api, site, request).catch(throwIfMissing)
  const cluster = clusterAt(neon, ref, site)
  const logins = await withAdmin(cluster, disableLogins)
  await prepareDatabase(cluster, request)
  await neonLogins({ clusterOf: async () => cluster, exists: async () => true }).end(
    ref,
    logins,
    async () => request.password,
  )
  if (state) await work.saveState({ ...state, ...readyState() })
}

import type { CopyRequest, ProjectSpec } from '../engine.ts'
import { EngineUnavailable, Superseded } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { withAdmin } from '../session.ts'
import { adoptBranch, copyHistory, emptyStorage, historyDigest, type ProjectLogin } from './adopt-branch.ts'
import { hasFailed, NeonFailure, OperationFailed } from './api.ts'
import { cachePassword, clusterAt, type Neon, setEndpointsEnabled, startWork, type Work } from './connection.ts'
import { prepareDatabase, prepareRoles } from './prepare.ts'
import {
  type CreatedDatabase,
  createBranch,
  createProject,
  type FoundDatabase,
  findBranch,
  findProject,
  findStored,
  removeBranches,
  removeProjects,
} from './projects.ts'
import { NEON_REGIONS } from './regions.ts'
import { ensureStorageSchema } from './schemas.ts'
import type { NeonState, Site } from './sites.ts'

export async function create(neon: Neon, spec: ProjectSpec, fence?: Fence): Promise<void> {
  const { ref, region = 'us-east-1' } = spec
  const work = await startWork(neon, ref, fence)
  const { api, sites, config } = work
  const { isReady, isBranch = false, site: storedSite } = (await sites.read(ref)) ?? {}
  const regionId = NEON_REGIONS[region]
  if (!regionId) throw new Error(`Neon has no region ${region}`)
  if (isReady && storedSite) {
    await setEndpointsEnabled(work, true)
    const cluster = clusterAt(neon, ref, storedSite)
    await prepareRoles(cluster, spec)
    // An earlier version may have created it.
    return withAdmin(cluster, ensureStorageSchema, cluster.names.database)
  }
  const stored: CreationState = { isBranch }
  const site = await ensureCreated(work, stored, {
    find: async () => (storedSite && (await findStored(api, storedSite))) ?? (await findProject(api, ref)),
    make() {
      stored.isBranch = false
      return createProject(api, ref, { regionId, postgresMajor: config.postgresMajor, size: spec.size })
    },
  })
  await prepareDatabase(clusterAt(neon, ref, site), spec)
  await work.saveState({ projectId: site.projectId, ...stored, site, ...readyState() })
}

export const readyState = () => ({ isReady: true, readySince: new Date().toISOString() })

/** State to store with a database while it is created. */
type CreationState = Pick<NeonState, 'isBranch' | 'history'>

interface Creation {
  /** Finds the database of an earlier attempt. */
  find(): Promise<FoundDatabase | undefined>
  make(): Promise<CreatedDatabase>
}

/**
 * Finds or creates the database, stores its site and waits until it is created. If Neon fails, removes it, so that the next
 * attempt creates it again.
 */
async function ensureCreated(work: Work, stored: CreationState, { find, make }: Creation): Promise<Site> {
  const { site, operations, adminPassword } = (await usableDatabase(work, await find())) ?? (await make())
  if (adminPassword) cachePassword(site.host, adminPassword)
  await work.saveState({ projectId: site.projectId, ...stored, site, isReady: false })
  try {
    await work.api.waitForOperations(operations)
  } catch (error) {
    if (error instanceof OperationFailed) await removeFailed(work, error)
    throw error
  }
  return site
}

/** The database of an earlier attempt. Removes one that failed or has no endpoint, and returns undefined. */
async function usableDatabase(work: Work, found: FoundDatabase | undefined): Promise<CreatedDatabase | undefined> {
  if (!found) return undefined
  const { site, operations } = found
  if (site && !operations.some(hasFailed)) return { site, operations }
  await remove(work)
  return undefined
}

/** Removes a failed database; if that fails, the next attempt finds it by the stored state. */
async function removeFailed(work: Work, failure: OperationFailed): Promise<void> {
  await remove(work).catch((error) => {
    if (error instanceof Superseded) throw error
    const reason = error instanceof Error ? error.message : String(error)
    throw new NeonFailure(`${failure.message}; it could not be removed: ${reason}`, { cause: failure })
  })
}

export async function copy(
  neon: Neon,
  { from, fromRunnerPassword, to, data }: CopyRequest,
  fence?: Fence,
): Promise<void> {
  const { ref, runnerPassword } = to
  const work = await startWork(neon, ref, fence)
  const { api, sites } = work
  const state = await sites.read(ref)
  if (state?.isReady) return
  const parent = await sites.require(from)
  const { projectId } = parent
  const source = { cluster: clusterAt(neon, from, parent), ref: from, runnerPassword: fromRunnerPassword }
  const stored: CreationState = { isBranch: true, history: state?.history }
  const site = await ensureCreated(work, stored, {
    find: () => findBranch(api, ref, projectId),
    async make() {
      if (!data) stored.history = await historyDigest(source)
      // Lets `remove` find the branch from now on.
      await work.saveState({ projectId, ...stored, isReady: false })
      return createBranch(api, ref, { projectId, parentId: parent.branchId, data, size: to.size })
    },
  })
  const target = { cluster: clusterAt(neon, ref, site), ref, runnerPassword }
  await adoptBranch(target.cluster, from, to)
  await work.checkFence()
  if (data) await emptyStorage(target)
  else await copyHistoryIfUnchanged(work, { source, target, history: stored.history })
  await work.saveState({ projectId, isBranch: true, site, ...readyState() })
}

/**
 * Copies the migration history. If a migration ran meanwhile, the schema may lack it: then the branch is removed for a
 * retry.
 */
async function copyHistoryIfUnchanged(
  work: Work,
  { source, target, history }: { source: ProjectLogin; target: ProjectLogin; history: string | undefined },
): Promise<void> {
  const isUnchanged = async () => (await historyDigest(source)) === history
  if (await isUnchanged()) {
    await copyHistory(source, target)
    if (await isUnchanged()) return
  }
  await remove(work)
  throw new EngineUnavailable(`a migration of ${source.ref} ran while its schema was copied: try again`)
}

export async function remove({ api, sites, ref, saveState }: Work): Promise<void> {
  const state = await sites.read(ref)
  if (state?.isBranch) await removeBranches(api, ref, state)
  else await removeProjects(api, ref, state?.site)
  await saveState(undefined)
}

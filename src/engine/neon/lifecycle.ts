import { type CopyRequest, EngineUnavailable, type Fence, type ProjectSpec, Superseded } from '../engine.ts'
import { withAdmin } from '../session.ts'
import { adopt, copyHistory, emptyStorage, historyOf, type Login } from './adopt-branch.ts'
import { hasFailed, NeonFailure, OperationFailed } from './api.ts'
import { begin, clusterAt, keepPassword, type Neon, setOpen, type Work } from './connection.ts'
import type { NeonState, Site } from './locations.ts'
import { prepareDatabase, prepareRoles } from './prepare.ts'
import {
  createBranch,
  createProject,
  type Found,
  findBranch,
  findNoted,
  findProject,
  type Made,
  removeBranches,
  removeProjects,
} from './projects.ts'
import { NEON_REGIONS } from './regions.ts'
import { ensureStorageSchema } from './schemas.ts'

export async function create(neon: Neon, spec: ProjectSpec, fence?: Fence): Promise<void> {
  const { ref, region = 'us-east-1' } = spec
  const work = await begin(neon, ref, fence)
  const { api, sites, config } = work
  const { isReady, isBranch = false, site: noted } = (await sites.read(ref)) ?? {}
  const id = NEON_REGIONS[region]
  if (!id) throw new Error(`Neon has no region ${region}`)
  if (isReady && noted) {
    await setOpen(work, true)
    const cluster = clusterAt(neon, ref, noted)
    await prepareRoles(cluster, spec)
    // An earlier version may have created it.
    return withAdmin(cluster, ensureStorageSchema, cluster.names.database)
  }
  const kept: Kept = { isBranch }
  const site = await settled(work, kept, {
    find: async () => (noted && (await findNoted(api, noted))) ?? (await findProject(api, ref)),
    make() {
      kept.isBranch = false
      return createProject(api, ref, { id, postgresMajor: config.postgresMajor, size: spec.size })
    },
  })
  await prepareDatabase(clusterAt(neon, ref, site), spec)
  await work.note({ projectId: site.projectId, ...kept, site, ...ready() })
}

export const ready = () => ({ isReady: true, readySince: new Date().toISOString() })

/** State to store with a database while it is created. */
type Kept = Pick<NeonState, 'isBranch' | 'history'>

interface Making {
  /** Finds the database of an earlier attempt. */
  find(): Promise<Found | undefined>
  make(): Promise<Made>
}

/**
 * Finds or creates the database, stores its site and waits until it is created. If Neon fails, removes it, so that the next
 * attempt creates it again.
 */
async function settled(work: Work, kept: Kept, { find, make }: Making): Promise<Site> {
  const { site, operations, adminPassword } = (await sound(work, await find())) ?? (await make())
  if (adminPassword) keepPassword(site.host, adminPassword)
  await work.note({ projectId: site.projectId, ...kept, site, isReady: false })
  try {
    await work.api.finished(operations)
  } catch (error) {
    if (error instanceof OperationFailed) await takeAway(work, error)
    throw error
  }
  return site
}

/** The database of an earlier attempt, if usable; removes one that failed. */
async function sound(work: Work, found: Found | undefined): Promise<Made | undefined> {
  if (!found) return undefined
  const { site, operations } = found
  if (site && !operations.some(hasFailed)) return { site, operations }
  await remove(work)
  return undefined
}

/** Removes a failed database; if that fails, the next attempt finds it by the stored state. */
async function takeAway(work: Work, failure: OperationFailed): Promise<void> {
  await remove(work).catch((error) => {
    if (error instanceof Superseded) throw error
    const left = error instanceof Error ? error.message : String(error)
    throw new NeonFailure(`${failure.message}; it could not be removed: ${left}`, { cause: failure })
  })
}

export async function copy(
  neon: Neon,
  { from, fromRunnerPassword, to, data }: CopyRequest,
  fence?: Fence,
): Promise<void> {
  const { ref, runnerPassword } = to
  const work = await begin(neon, ref, fence)
  const { api, sites } = work
  const state = await sites.read(ref)
  if (state?.isReady) return
  const parent = await sites.require(from)
  const { projectId } = parent
  const source = { cluster: clusterAt(neon, from, parent), ref: from, runnerPassword: fromRunnerPassword }
  const kept: Kept = { isBranch: true, history: state?.history }
  const site = await settled(work, kept, {
    find: () => findBranch(api, ref, projectId),
    async make() {
      if (!data) kept.history = await historyOf(source)
      // Lets `remove` find the branch from now on.
      await work.note({ projectId, ...kept, isReady: false })
      return createBranch(api, ref, { projectId, parentId: parent.branchId, data, size: to.size })
    },
  })
  const copied = { cluster: clusterAt(neon, ref, site), ref, runnerPassword }
  await adopt(copied.cluster, from, to)
  await work.mayGoOn()
  if (data) await emptyStorage(copied)
  else await bringHistory(work, { source, copied, history: kept.history })
  await work.note({ projectId, isBranch: true, site, ...ready() })
}

/**
 * Copies the migration history. If a migration ran meanwhile, the schema may lack it: then the branch is removed for a
 * retry.
 */
async function bringHistory(
  work: Work,
  { source, copied, history }: { source: Login; copied: Login; history: string | undefined },
): Promise<void> {
  const isAsBefore = async () => (await historyOf(source)) === history
  if (await isAsBefore()) {
    await copyHistory(source, copied)
    if (await isAsBefore()) return
  }
  await remove(work)
  throw new EngineUnavailable(`a migration of ${source.ref} ran while its schema was copied: try again`)
}

export async function remove({ api, sites, ref, note }: Work): Promise<void> {
  const state = await sites.read(ref)
  if (state?.isBranch) await removeBranches(api, ref, state)
  else await removeProjects(api, ref, state?.site)
  await note(undefined)
}

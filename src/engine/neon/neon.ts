import { runBatch } from '../batch.ts'
import { diff } from '../diff/diff.ts'
import {
  type CopyRequest,
  type EngineHealth,
  EngineUnavailable,
  type Fence,
  type PointInTimeRequest,
  type ProjectEngine,
  type ProjectSpec,
  Superseded,
} from '../engine.ts'
import { healthWithin, serverVersion } from '../health.ts'
import { projectNames } from '../names.ts'
import { repairRunners, setOwnerPassword } from '../roles.ts'
import { runSql } from '../run.ts'
import { type Cluster, withAdmin } from '../session.ts'
import { runTransaction } from '../transaction.ts'
import { adopt, closeLogins, copyHistory, emptyStorage, historyOf, type Login } from './adopt.ts'
import {
  hasFailed,
  isGone,
  type NeonAccount,
  type NeonApi,
  NeonFailure,
  neonApi,
  OperationFailed,
  refused,
} from './api.ts'
import { noBackups } from './backups.ts'
import { loginsIn, neonLogins } from './logins.ts'
import { passwordFailure } from './passwords.ts'
import { ADMIN, ensureStorageSchema, prepareDatabase, prepareRoles } from './prepare.ts'
import {
  createBranch,
  createProject,
  type Found,
  findBranch,
  findNoted,
  findProject,
  type Made,
  refsOf,
  removeBranches,
  removeProjects,
  unlessGone,
} from './projects.ts'
import { NEON_REGIONS } from './regions.ts'
import { addReplica, removeReplica } from './replicas.ts'
import { beginRestore, finishRestore } from './restore.ts'
import { neonSettings } from './settings.ts'
import { keepSites, type NeonState, type NeonStates, type Site, type Sites } from './sites.ts'
import { limitsOf, NEON_SIZES } from './sizes.ts'
import { stateIn } from './states.ts'

export interface NeonEngineConfig extends NeonAccount {
  postgresMajor: number
  states: NeonStates
  /** Base URL of a Neon-compatible proxy that stands in for Neon's own. */
  proxy?: string | undefined
  egress?: Fetcher | undefined
}

interface Neon {
  config: NeonEngineConfig
  api: NeonApi
  sites: Sites
}

/**
 * A Neon project for each project, and in it a branch for each branch. Every one is a cluster of its own, so that its owner
 * sees nothing of others. Neon takes one piece of work on a project at a time: what overlaps waits, or is done again.
 */
export function createNeonEngine(config: NeonEngineConfig): ProjectEngine {
  const neon: Neon = { config, api: neonApi(config), sites: keepSites(config.states) }
  const { sites } = neon
  const clusterOf = async (ref: string) => clusterAt(neon, await sites.require(ref))

  /** The site may have gone since it was looked up. */
  async function at<Value>(ref: string, work: (cluster: Cluster) => Promise<Value>): Promise<Value> {
    try {
      return await work(await clusterOf(ref))
    } catch (error) {
      if (error instanceof EngineUnavailable) sites.forget(ref)
      throw error
    }
  }

  return {
    name: 'neon',
    capabilities: {
      pause: true,
      backups: false,
      loginNetworks: false,
      tellsPasswords: true,
      reachesPaused: false,
      plainConnections: false,
    },
    regions: new Set(Object.keys(NEON_REGIONS)),
    create: (spec, fence) => create(neon, spec, fence),
    copy: (request, fence) => copy(neon, request, fence),
    remove: async (ref, fence) => remove(await begin(neon, ref, fence)),
    pause: async (ref, fence) => setOpen(await begin(neon, ref, fence), false),
    resume: async (ref, fence) => setOpen(await begin(neon, ref, fence), true),
    restart: async (ref, fence) => restart(await begin(neon, ref, fence)),
    setPassword: (ref, password) =>
      at(ref, (cluster) => setOwnerPassword(cluster, ref, password).catch(passwordFailure)),
    diff: (request) => diff(clusterOf, request),
    health: (ref, timeoutMs) => healthWithin(timeoutMs, state(neon, ref)),
    version: (ref) => at(ref, serverVersion),
    runSql: (request) => at(request.ref, (cluster) => runSql(cluster, request)),
    transaction: (request, work) => at(request.ref, (cluster) => runTransaction(cluster, request, work)),
    runBatch: (request) => at(request.ref, (cluster) => runBatch(cluster, request)),
    upgrade: (spec) => at(spec.ref, (cluster) => upgrade(cluster, spec)),
    refs: async () => [...new Set([...(await refsOf(neon.api)), ...(await config.states.refs())])],
    // Each would have to be woken to be looked at: a session's own limits end it.
    sweep: async () => 0,
    settings: neonSettings({ clusterOf, sizeOf: (ref) => sizeOf(neon, ref) }),
    logins: neonLogins({ clusterOf, exists: (ref) => exists(neon, ref) }),
    backups: noBackups,
    pointInTime: {
      window: (ref, now) => historyOfBranch(neon, ref, now),
      begin: (request, fence) => beginMoment(neon, request, fence),
      finish: (request, fence) => finishMoment(neon, request, fence),
    },
    replicas: {
      of: ({ engineState }) =>
        (stateIn(engineState)?.replicas ?? []).map(({ identifier, isReady, host }) => ({
          ...{ identifier, isReady, host },
          poolerHost: poolerHostOf(host),
        })),
      add: async (ref, identifier, fence) => addReplica(await begin(neon, ref, fence), identifier),
      remove: async (ref, identifier, fence) => removeReplica(await begin(neon, ref, fence), identifier),
    },
    sizes: {
      offered: NEON_SIZES,
      set: async (ref, size, fence) => resize(await begin(neon, ref, fence), size),
    },
    connection({ ref, engineState }) {
      const { owner, database } = projectNames(ref)
      const host = stateIn(engineState)?.site?.host ?? ''
      return { host, ...(host && { poolerHost: poolerHostOf(host) }), port: 5432, user: owner, database }
    },
  }
}

/** Neon's pooler answers for each endpoint by its id with a suffix. */
const poolerHostOf = (host: string): string => host.replace(/^[^.]+/, '$&-pooler')

/** By host. */
const passwords = new Map<string, string>()
const PASSWORDS_MAX = 5_000

function clusterAt({ api, config: { proxy, egress } }: Neon, { projectId, branchId, host }: Site): Cluster {
  return {
    adminUrl: `postgresql://${ADMIN}@${host}/${ADMIN}`,
    async adminPassword() {
      const known = passwords.get(host)
      if (known !== undefined) return known
      const query = { branch_id: branchId, database_name: ADMIN, role_name: ADMIN }
      const { uri } = await api.connectionUri(projectId, query)
      return keepPassword(host, decodeURIComponent(new URL(uri).password))
    },
    forgetAdminPassword: () => passwords.delete(host),
    plainPasswords: true,
    administrator: ADMIN,
    proxy,
    egress,
  }
}

function keepPassword(host: string, password: string): string {
  if (passwords.size >= PASSWORDS_MAX) passwords.clear()
  passwords.set(host, password)
  return password
}

/** One piece of work on a project. Nothing keeps others away from it: so it asks whether it may before each thing that it does. */
interface Work extends Neon {
  ref: string
  mayGoOn(): Promise<void>
  note(state: NeonState | undefined): Promise<void>
}

async function begin(neon: Neon, ref: string, fence: Fence | undefined): Promise<Work> {
  const mayGoOn = async () => {
    if (fence && !(await fence())) throw new Superseded(`somebody else has taken over ${ref}`)
  }
  await mayGoOn()
  return {
    ...neon,
    ref,
    mayGoOn,
    api: neonApi(neon.config, mayGoOn),
    async note(state) {
      await mayGoOn()
      await neon.sites.write(ref, state)
    },
  }
}

async function create(neon: Neon, spec: ProjectSpec, fence?: Fence): Promise<void> {
  const { ref, region = 'us-east-1' } = spec
  const work = await begin(neon, ref, fence)
  const { api, sites, config } = work
  const { isReady, isBranch = false, site: noted } = (await sites.read(ref)) ?? {}
  const id = NEON_REGIONS[region]
  if (!id) throw new Error(`Neon has no region ${region}`)
  if (isReady && noted) {
    await setOpen(work, true)
    return prepareRoles(clusterAt(neon, noted), spec)
  }
  const kept: Kept = { isBranch }
  const site = await settled(work, kept, {
    find: async () => (noted && (await findNoted(api, noted))) ?? (await findProject(api, ref)),
    make() {
      kept.isBranch = false
      return createProject(api, ref, { id, postgresMajor: config.postgresMajor, size: spec.size })
    },
  })
  await prepareDatabase(clusterAt(neon, site), spec)
  await work.note({ projectId: site.projectId, ...kept, site, ...ready() })
}

const ready = () => ({ isReady: true, readySince: new Date().toISOString() })

/** What else is noted of what is being made. */
type Kept = Pick<NeonState, 'isBranch' | 'history'>

interface Making {
  /** What an earlier attempt has left. */
  find(): Promise<Found | undefined>
  make(): Promise<Made>
}

/** Written down before it is waited for; what Neon could not make is taken away, and made anew by the next attempt. */
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

/** An earlier attempt may not have come to take away what failed. */
async function sound(work: Work, found: Found | undefined): Promise<Made | undefined> {
  if (!found) return undefined
  const { site, operations } = found
  if (site && !operations.some(hasFailed)) return { site, operations }
  await remove(work)
  return undefined
}

/** What is kept of it leads the next attempt to what is still there. */
async function takeAway(work: Work, failure: OperationFailed): Promise<void> {
  await remove(work).catch((error) => {
    if (error instanceof Superseded) throw error
    const left = error instanceof Error ? error.message : String(error)
    throw new NeonFailure(`${failure.message}; it is still there, as ${left}`, { cause: failure })
  })
}

async function copy(neon: Neon, { from, fromRunnerPassword, to, data }: CopyRequest, fence?: Fence): Promise<void> {
  const { ref, runnerPassword } = to
  const work = await begin(neon, ref, fence)
  const { api, sites } = work
  const state = await sites.read(ref)
  if (state?.isReady) return
  const parent = await sites.require(from)
  const { projectId } = parent
  const source = { cluster: clusterAt(neon, parent), ref: from, runnerPassword: fromRunnerPassword }
  const kept: Kept = { isBranch: true, history: state?.history }
  const site = await settled(work, kept, {
    find: () => findBranch(api, ref, projectId),
    async make() {
      if (!data) kept.history = await historyOf(source)
      // From now on `remove` knows where to look for it.
      await work.note({ projectId, ...kept, isReady: false })
      return createBranch(api, ref, { projectId, parentId: parent.branchId, data, size: to.size })
    },
  })
  const copied = { cluster: clusterAt(neon, site), ref, runnerPassword }
  await adopt(copied.cluster, from, to)
  await work.mayGoOn()
  if (data) await emptyStorage(copied)
  else await bringHistory(work, { source, copied, history: kept.history })
  await work.note({ projectId, isBranch: true, site, ...ready() })
}

/** A migration that came meanwhile is in the history, and nobody knows whether it is in the schema: then both are taken anew. */
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
  throw new EngineUnavailable(`${source.ref} has had another migration while its schema was copied`)
}

/** Neon keeps a history of so many seconds for all branches of a project; what was before the database was ready is not its own. */
async function historyOfBranch({ api, sites }: Neon, ref: string, now: Date) {
  const { projectId } = await sites.require(ref)
  const { project } = await api.getProject(projectId).catch(missing)
  const { readySince } = (await sites.read(ref)) ?? {}
  const keptFrom = now.getTime() - project.history_retention_seconds * 1_000
  return { earliest: new Date(Math.max(keptFrom, readySince ? Date.parse(readySince) : 0)), latest: now }
}

async function beginMoment(neon: Neon, request: PointInTimeRequest, fence?: Fence): Promise<void> {
  const { api, sites, ref } = await begin(neon, request.ref, fence)
  await beginRestore(api, await sites.require(ref), request).catch(missing)
}

/** Roles and passwords went back with the rest. */
async function finishMoment(neon: Neon, request: PointInTimeRequest & ProjectSpec, fence?: Fence): Promise<void> {
  const work = await begin(neon, request.ref, fence)
  const { api, sites, ref } = work
  const state = await sites.read(ref)
  const site = await sites.require(ref)
  await finishRestore(api, site, request).catch(missing)
  const cluster = clusterAt(neon, site)
  const logins = await withAdmin(cluster, (admin) => closeLogins(admin, projectNames(ref)))
  await prepareDatabase(cluster, request)
  await loginsIn(cluster).end(ref, logins, async () => request.password)
  if (state) await work.note({ ...state, ...ready() })
}

async function remove({ api, sites, ref, note }: Work): Promise<void> {
  const state = await sites.read(ref)
  if (state?.isBranch) await removeBranches(api, ref, state)
  else await removeProjects(api, ref, state?.site)
  await note(undefined)
}

async function setOpen({ api, sites, ref }: Work, open: boolean): Promise<void> {
  const site = open ? await sites.require(ref) : await sites.find(ref)
  if (!site) return
  const { operations } = await api.updateEndpoint(site.projectId, site.endpointId, { disabled: !open }).catch(missing)
  await api.finished(operations)
  for (const { endpointId } of (await sites.read(ref))?.replicas ?? []) {
    const updated = await unlessGone(api.updateEndpoint(site.projectId, endpointId, { disabled: !open }))
    await api.finished(updated?.operations ?? [])
  }
}

async function resize({ api, sites, ref }: Work, size: string): Promise<void> {
  const { projectId, endpointId } = await sites.require(ref)
  const { operations } = await api.updateEndpoint(projectId, endpointId, limitsOf(size)).catch(refused).catch(missing)
  await api.finished(operations)
}

async function restart({ api, sites, ref }: Work): Promise<void> {
  const { projectId, endpointId } = await sites.require(ref)
  const { operations } = await api.restartEndpoint(projectId, endpointId).catch(missing)
  await api.finished(operations)
}

const GONE = 'the database does not exist'

function missing(error: unknown): never {
  throw isGone(error) ? new EngineUnavailable(GONE, { code: '3D000', cause: error }) : error
}

/** As Neon has it: to connect would wake a database that sleeps. */
async function state({ api, sites }: Neon, ref: string): Promise<EngineHealth> {
  const site = await sites.find(ref)
  if (!site) return { healthy: false, error: GONE }
  const { endpoint } = await api.getEndpoint(site.projectId, site.endpointId).catch(missing)
  return endpoint.disabled ? { healthy: false, error: 'the database accepts no connections' } : { healthy: true }
}

async function exists({ api, sites }: Neon, ref: string): Promise<boolean> {
  const site = await sites.find(ref)
  if (!site) return false
  try {
    await api.getEndpoint(site.projectId, site.endpointId)
    return true
  } catch (error) {
    if (isGone(error)) return false
    throw error
  }
}

async function sizeOf({ api, sites }: Neon, ref: string): Promise<number | undefined> {
  const site = await sites.find(ref)
  if (!site) return undefined
  return (await api.getBranch(site.projectId, site.branchId)).branch.logical_size
}

async function upgrade(cluster: Cluster, { ref, runnerPassword }: Omit<ProjectSpec, 'password'>): Promise<void> {
  await repairRunners(cluster, ref, runnerPassword)
  await withAdmin(cluster, ensureStorageSchema, projectNames(ref).database)
}

import { sessionsOf } from '../cluster-sessions.ts'
import { diff } from '../diff/diff.ts'
import { driverState } from '../driver-states.ts'
import type { EngineHealth, ProjectEngine, ProjectSpec } from '../engine.ts'
import { DATABASE_MISSING, EngineUnavailable } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { healthWithTimeout, serverVersion } from '../health.ts'
import { joinText } from '../json-bytes.ts'
import { projectNames } from '../names.ts'
import { repairRunners, setOwnerPassword } from '../roles.ts'
import { runBatch } from '../run-batch.ts'
import { runSql } from '../run-sql.ts'
import { type Cluster, withAdmin } from '../session.ts'
import { STORAGE_VERSION } from '../storage/schema.ts'
import { runTransaction } from '../transaction.ts'
import { neonApi, throwRefusal } from './api.ts'
import { noBackups } from './backups.ts'
import {
  clusterAt,
  type Neon,
  type NeonEngineConfig,
  setEndpointsEnabled,
  startWork,
  throwIfMissing,
  updateEndpoints,
  type Work,
} from './connection.ts'
import { copy, create, remove } from './lifecycle.ts'
import { neonLogins } from './logins.ts'
import { passwordFailure } from './passwords.ts'
import { neonHistory } from './point-in-time.ts'
import { ignoreNotFound, refsOf } from './projects.ts'
import { NEON_REGIONS } from './regions.ts'
import { addReplica, removeReplica } from './replicas.ts'
import { ensureStorageSchema } from './schemas.ts'
import { neonSettings } from './settings.ts'
import { type NeonState, siteCache } from './sites.ts'
import { limitsOf, NEON_SIZES } from './sizes.ts'

/**
 * The driver `neon`: a Neon project per project, and in it a Neon branch per branch. Each is a separate cluster, so that
 * owners are isolated. Neon runs one operation on a project at a time: overlapping requests wait or are retried.
 */
export function createNeonEngine(config: NeonEngineConfig): ProjectEngine {
  const neon: Neon = { config, api: neonApi(config), sites: siteCache(config.states) }
  const { sites } = neon
  const versions = [String(config.postgresMajor)]
  const clusterOf = async (ref: string) => clusterAt(neon, ref, await sites.require(ref))

  /** Drops the cached site if the database is unavailable: it may have been replaced. */
  async function withCluster<Value>(ref: string, work: (cluster: Cluster) => Promise<Value>): Promise<Value> {
    try {
      return await work(await clusterOf(ref))
    } catch (error) {
      if (error instanceof EngineUnavailable) sites.forget(ref)
      throw error
    }
  }

  const restartEndpoint = async (ref: string, fence?: Fence) => restart(await startWork(neon, ref, fence))

  return {
    name: 'neon',
    preparation: STORAGE_VERSION,
    capabilities: {
      backups: false,
      loginNetworks: false,
      exposesPasswords: true,
      plainConnections: false,
      offlineSettings: false,
    },
    listRegions: async () => Object.keys(NEON_REGIONS).map((region) => ({ region, versions, sizes: NEON_SIZES })),
    create: (spec, fence) => create(neon, spec, fence),
    copy: (request, fence) => copy(neon, request, fence),
    remove: async (ref, fence) => remove(await startWork(neon, ref, fence)),
    pause: async (ref, fence) => setEndpointsEnabled(await startWork(neon, ref, fence), false),
    resume: async (ref, fence) => setEndpointsEnabled(await startWork(neon, ref, fence), true),
    restart: restartEndpoint,
    setPassword: (ref, password) =>
      withCluster(ref, (cluster) => setOwnerPassword(cluster, password).catch(passwordFailure)),
    diff: (request) => diff(clusterOf, request),
    health: (ref, timeoutMs) => healthWithTimeout(timeoutMs, healthOf(neon, ref)),
    version: (ref) => withCluster(ref, serverVersion),
    runSql: (request) =>
      withCluster(request.ref, async (cluster) => joinText(await runSql(sessionsOf(cluster), request))),
    transaction: (request, work) =>
      withCluster(request.ref, (cluster) => runTransaction(sessionsOf(cluster), request, work)),
    runBatch: (request) => withCluster(request.ref, (cluster) => runBatch(cluster, request)),
    prepare: (spec) => withCluster(spec.ref, (cluster) => prepare(cluster, spec)),
    refs: async () => [...new Set([...(await refsOf(neon.api)), ...(await config.states.refs())])],
    settings: neonSettings({ clusterOf, restart: restartEndpoint, sizeOf: (ref) => sizeOf(neon, ref) }),
    logins: neonLogins({ clusterOf, exists: (ref) => exists(neon, ref) }),
    backups: noBackups,
    pointInTime: neonHistory(neon),
    replicas: {
      list: ({ engineState }) =>
        (driverState<NeonState>(engineState)?.replicas ?? []).map(({ identifier, isReady, hasFailed, host }) => ({
          ...{ identifier, isReady, hasFailed, host },
          poolerHost: poolerHostOf(host),
        })),
      add: async (ref, identifier, fence) => addReplica(await startWork(neon, ref, fence), identifier),
      remove: async (ref, identifier, fence) => removeReplica(await startWork(neon, ref, fence), identifier),
    },
    sizes: {
      offered: async () => NEON_SIZES,
      set: async (ref, size, fence) => resize(await startWork(neon, ref, fence), size),
    },
    connection({ ref, engineState }, role) {
      const { owner, database } = projectNames(ref)
      const host = driverState<NeonState>(engineState)?.site?.host ?? ''
      const pooler = host && { poolerHost: poolerHostOf(host) }
      return { host, ...pooler, port: 5432, user: role ?? owner, database, isOnLocalHost: false }
    },
  }
}

/** The pooler's host name is that of the endpoint with a suffix after the endpoint's id. */
const poolerHostOf = (host: string): string => host.replace(/^[^.]+/, '$&-pooler')

async function resize(work: Work, size: string): Promise<void> {
  await updateEndpoints(work, await work.sites.require(work.ref), limitsOf(size)).catch(throwRefusal)
}

async function restart({ api, sites, ref }: Work): Promise<void> {
  const { projectId, endpointId } = await sites.require(ref)
  const { operations } = await api.restartEndpoint(projectId, endpointId).catch(throwIfMissing)
  await api.waitForOperations(operations)
}

/** The state that Neon reports. Connecting to the database would wake it. */
async function healthOf({ api, sites }: Neon, ref: string): Promise<EngineHealth> {
  const site = await sites.find(ref)
  if (!site) return { healthy: false, error: DATABASE_MISSING }
  const { endpoint } = await api.getEndpoint(site.projectId, site.endpointId).catch(throwIfMissing)
  return endpoint.disabled ? { healthy: false, error: 'the database accepts no connections' } : { healthy: true }
}

async function exists({ api, sites }: Neon, ref: string): Promise<boolean> {
  const site = await sites.find(ref)
  const found = site && (await ignoreNotFound(api.getEndpoint(site.projectId, site.endpointId)))
  return found !== undefined
}

async function sizeOf({ api, sites }: Neon, ref: string): Promise<number | undefined> {
  const site = await sites.find(ref)
  if (!site) return undefined
  return (await api.getBranch(site.projectId, site.branchId)).branch.logical_size
}

async function prepare(cluster: Cluster, { runnerPassword }: Omit<ProjectSpec, 'password'>): Promise<void> {
  await repairRunners(cluster, runnerPassword)
  await withAdmin(cluster, ensureStorageSchema, cluster.names.database)
}

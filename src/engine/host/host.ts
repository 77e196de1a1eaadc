import * as z from 'zod'
import { REF } from '../../platform/identifiers.ts'
import { sessionsOf } from '../cluster-sessions.ts'
import { diff } from '../diff/diff.ts'
import type { CopyRequest, EngineHealth, ProjectEngine, ProjectSpec } from '../engine.ts'
import { DATABASE_MISSING, EngineBusy, EngineUnavailable } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { healthWithTimeout } from '../health.ts'
import { setOwnerPassword } from '../roles.ts'
import { runBatch } from '../run-batch.ts'
import { type Session, withAdmin } from '../session.ts'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../storage/schema.ts'
import { runTransaction } from '../transaction.ts'
import { hostBackups, hostHistory } from './backups.ts'
import { hostBans } from './bans.ts'
import { type HostApi, Instance, ignoreMissing, LONG_OPERATION_MS_MAX, NoContent } from './client.ts'
import { OTHER_DATABASES, REVOKE_EXTENSION_RIGHTS } from './extension-rights.ts'
import { hostLogins } from './logins.ts'
import { hostLogs } from './logs.ts'
import { hostMoves } from './moves.ts'
import { HOST_NAMES } from './names.ts'
import { chooseHost, listRegions, machines } from './placement.ts'
import { programRequest } from './program-request.ts'
import { type HostAccess, type HostEngineConfig, hostAccess } from './project-host.ts'
import { hostReplicas } from './replicas.ts'
import { runSqlAt } from './scripts.ts'
import { hostSettings, listInstances } from './settings.ts'
import { hostUpgrades } from './upgrades.ts'

/** The driver `host`: a Postgres instance per project, on a database host of this installation. */
export function createHostEngine(config: HostEngineConfig): ProjectEngine {
  const { states } = config
  const access = hostAccess(config)
  const { clusterOf } = access
  const history = hostHistory(access)
  const change = (ref: string, fence: Fence | undefined, action: 'pause' | 'resume' | 'restart') =>
    access.changeInstance(ref, fence, { method: 'POST', path: `/${action}` })

  const removeProject = (ref: string, fence?: Fence) => access.withRemovalLock(() => remove(config, access, ref, fence))

  /** Drops the cached host if the project is unavailable: it may have moved. */
  const withFreshHost = <Value>(ref: string, work: () => Promise<Value>): Promise<Value> =>
    work().catch((error) => {
      if (error instanceof EngineUnavailable) config.hosts.cacheHost(ref, undefined)
      throw error
    })

  return {
    name: 'host',
    preparation: [STORAGE_VERSION, config.plans ?? []].flat().join(' '),
    capabilities: {
      get backups() {
        return access.mayOffer('backups')
      },
      loginNetworks: true,
      exposesPasswords: false,
      plainConnections: true,
      offlineSettings: true,
    },
    listRegions: () => listRegions(access),
    async create(spec, fence) {
      const api = await hostFor(config, access, spec)
      await api.withLock(spec.ref, fence, async (ask) => {
        await access.storeHost(spec.ref, api)
        const body = { ...instanceBody(spec), version: spec.version }
        await ask(Instance, { method: 'PUT', path: `/instances/${spec.ref}`, body })
      })
      await prepare(access, spec.ref)
    },
    async copy(request, fence) {
      const { from, to } = request
      const host = (await states.read(to.ref))?.host
      config.hosts.cacheHost(from, undefined)
      // The project has moved since an earlier attempt, which may have copied it on its former host. That one may be lost.
      if (host !== undefined && host !== (await access.api(from)).host.id) {
        await removeProject(to.ref, fence).catch((error) => {
          if (!(error instanceof EngineUnavailable) || error instanceof EngineBusy) throw error
        })
      }
      await copy(access, request, fence)
    },
    remove: removeProject,
    async pause(ref, fence) {
      // A database that does not exist counts as paused.
      await change(ref, fence, 'pause').catch(ignoreMissing)
    },
    resume: (ref, fence) => change(ref, fence, 'resume'),
    restart: (ref, fence) => change(ref, fence, 'restart'),
    setPassword: async (ref, password) => setOwnerPassword(await clusterOf(ref), password),
    diff: (request) => diff(clusterOf, request),
    health: (ref, timeoutMs) => healthWithTimeout(timeoutMs, healthOf(access, ref)),
    version: async (ref) => (await access.getInstance(ref)).version,
    runSql: (request) =>
      withFreshHost(request.ref, async () => runSqlAt(await config.hosts.of(request.ref), config.egress, request)),
    transaction: (request, work) =>
      withFreshHost(request.ref, async () => runTransaction(sessionsOf(await clusterOf(request.ref)), request, work)),
    runBatch: (request) => withFreshHost(request.ref, async () => runBatch(await clusterOf(request.ref), request)),
    async prepare({ ref, sleepAfterSeconds }) {
      if (sleepAfterSeconds !== undefined) {
        const body = { after_seconds: sleepAfterSeconds }
        await (await access.api(ref)).ask(NoContent, { method: 'PUT', path: `/instances/${ref}/sleep`, body })
      }
      await prepare(access, ref)
    },
    async refs() {
      const names = (await listInstances(access)).map(({ name }) => name).filter((name) => REF.test(name))
      return [...new Set([...names, ...(await states.refs())])]
    },
    wokenRefs: async () => (await listInstances(access, '?woken=true')).map(({ name }) => name),
    settings: hostSettings(access),
    logins: hostLogins(access),
    upgrades: hostUpgrades(access),
    bans: hostBans(access),
    logs: hostLogs(access),
    machines: () => machines(access),
    async metrics(ref) {
      const { ask } = await access.api(ref)
      return ask(z.string(), { method: 'GET', path: `/instances/${ref}/metrics?format=prometheus` })
    },
    backups: hostBackups(access),
    moves: hostMoves(access, states),
    get pointInTime() {
      return access.mayOffer('backups') ? history : undefined
    },
    replicas: hostReplicas(access, states),
    sizes: {
      async offered(ref) {
        const { get } = access.descriptions
        // A project whose creation has not begun has no host yet.
        const own = ref === undefined ? undefined : await access.api(ref).then(get).catch(ignoreMissing)
        const found = own ? [own] : await access.askAllHosts(get)
        return new Set(found.flatMap(({ sizes }) => sizes))
      },
      set: (ref, size, fence) => access.changeInstance(ref, fence, { method: 'PUT', path: '/size', body: { size } }),
    },
    programRequest: async (ref) => programRequest((await config.hosts.of(ref)).key, ref),
    connection({ ref, engineState }, role = HOST_NAMES.owner) {
      const { databaseHost, databasePort: port, databaseDomain } = access.addressOf(engineState)
      const { database } = HOST_NAMES
      const isOnLocalHost = access.isLocal(engineState)
      return databaseDomain === undefined
        ? { host: databaseHost, port, user: `${role}.${ref}`, database, isOnLocalHost }
        : { host: `db.${ref}.${databaseDomain}`, port, user: role, database, isOnLocalHost }
    },
  }
}

const instanceBody = ({ password, size, sleepAfterSeconds }: ProjectSpec) => ({
  password,
  size,
  sleep_after_seconds: sleepAfterSeconds,
})

/** Chooses the host of a new project; an earlier attempt continues on its host. */
async function hostFor({ hosts, states }: HostEngineConfig, access: HostAccess, spec: ProjectSpec): Promise<HostApi> {
  const hostId = (await states.read(spec.ref))?.host
  if (hostId !== undefined) return access.apiAt(await hosts.get(hostId))
  return spec.beside === undefined ? chooseHost(access, spec) : access.api(spec.beside)
}

/**
 * Removes the instance. The host is not known if the project was never created, its removal was not recorded, or its lost host was
 * removed. The instance and its archive are then removed from all hosts.
 */
async function remove(
  { hosts, states }: HostEngineConfig,
  access: HostAccess,
  ref: string,
  fence: Fence | undefined,
): Promise<void> {
  const removeAt = (api: HostApi) =>
    api.withLock(ref, fence, async (ask) => {
      await ask(NoContent, { method: 'DELETE', path: `/instances/${ref}` })
      await states.write(ref, undefined)
      hosts.cacheHost(ref, undefined)
    })
  const hostId = (await states.read(ref))?.host
  const host = (await hosts.all()).find(({ id }) => id === hostId)
  if (host) await removeAt(access.apiAt(host))
  else await access.askAllHosts(removeAt)
}

/** Copies a project on its parent's host, because the copy is made from the parent's files. */
async function copy(access: HostAccess, { from, to, data }: CopyRequest, fence?: Fence): Promise<void> {
  const api = await access.api(from)
  const { ref } = to
  const body = { from, data, ...instanceBody(to) }
  await api.withLock(ref, fence, async (ask) => {
    await access.storeHost(ref, api)
    const call = { method: 'POST', path: `/instances/${ref}/copy`, body, waitMs: LONG_OPERATION_MS_MAX } as const
    await ask(NoContent, call)
  })
  await prepare(access, ref)
}

/** Upgrades the databases of the instance: an earlier version may have created it or its parent. */
async function prepare({ clusterOf }: HostAccess, ref: string): Promise<void> {
  const cluster = await clusterOf(ref)
  await withAdmin(cluster, async (inside) => {
    const [row] = await inside.rows<{ version: string | null }>(STORAGE_VERSION_QUERY)
    if (row?.version === STORAGE_VERSION) return
    for (const { name } of await inside.rows<{ name: string }>(OTHER_DATABASES)) {
      await withAdmin(cluster, (other) => upgrade(other, [REVOKE_EXTENSION_RIGHTS]), name)
    }
    await upgrade(inside, [REVOKE_EXTENSION_RIGHTS, ...storageSchema('services')])
  })
}

const LOCK_WAIT_MS = 2_000

/**
 * Resets the settings that the owner made for all sessions of the database, because some change the meaning of SQL. The lock
 * timeout is short, because a session that waits for a lock blocks those that come after it. Event triggers of an earlier version would
 * fill a table that has moved.
 */
const RESET_OWNER_SETTINGS = `
  SELECT count(set_config(name, boot_val, false)) FROM pg_settings
   WHERE source = 'database' AND context IN ('user', 'superuser') AND boot_val IS NOT NULL;
  SET statement_timeout = '1min';
  SET event_triggers = off;
  SET lock_timeout = ${LOCK_WAIT_MS}`

/** Runs the statements in one transaction. */
async function upgrade(inside: Session, statements: readonly string[]): Promise<void> {
  await inside.rows(RESET_OWNER_SETTINGS)
  await inside.rows(statements.join(';\n'))
}

const CLOSED = 'the database accepts no connections'

/** The state that the host reports. Connecting to the database would wake it. */
async function healthOf(access: HostAccess, ref: string): Promise<EngineHealth> {
  const found = await access.getInstance(ref).catch(ignoreMissing)
  if (!found) return { healthy: false, error: DATABASE_MISSING }
  const { state, error } = found
  if (state === 'paused') return { healthy: false, error: CLOSED }
  // A running server has an error while its disk is not writable.
  if (state === 'failed' || error) return { healthy: false, error: error ?? CLOSED }
  return { healthy: true, ...(state === 'asleep' && { isAsleep: true }) }
}

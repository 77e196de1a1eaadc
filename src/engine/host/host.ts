import * as z from 'zod'
import { INSTANCE_SIZES } from '../../model/tables/values.ts'
import { sessionsOf } from '../cluster-sessions.ts'
import { diff } from '../diff/diff.ts'
import {
  type CopyRequest,
  type EngineHealth,
  EngineUnavailable,
  type Fence,
  type ProjectEngine,
  type ProjectSpec,
} from '../engine.ts'
import { healthWithin } from '../health.ts'
import { setOwnerPassword } from '../roles.ts'
import { runBatch } from '../run-batch.ts'
import { type Session, withAdmin } from '../session.ts'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../storage/schema.ts'
import { runTransaction } from '../transaction.ts'
import { hostBackups, hostHistory } from './backups.ts'
import { hostBans } from './bans.ts'
import { GONE, type HostApi, Instance, isGone, Nothing } from './client.ts'
import { hostLogins } from './logins.ts'
import { hostLogs } from './logs.ts'
import { hostMoves } from './moves.ts'
import { HOST_NAMES } from './names.ts'
import { chooseHost, machines, places } from './placement.ts'
import { type HostEngineConfig, type Reach, reachOf } from './project-host.ts'
import { hostReplicas } from './replicas.ts'
import { runSqlAt } from './scripts.ts'
import { hostSettings, instances } from './settings.ts'
import { hostUpgrades } from './upgrades.ts'

/** The driver `host`: a Postgres instance per project, on a database host of this installation. */
export function createHostEngine(config: HostEngineConfig): ProjectEngine {
  const { states } = config
  const reach = reachOf(config)
  const { clusterOf } = reach
  const history = hostHistory(reach)
  const change = (ref: string, fence: Fence | undefined, what: 'pause' | 'resume' | 'restart') =>
    reach.change(ref, fence, { method: 'POST', path: `/${what}` })

  /** Drops the cached host if the project is unavailable: it may have moved. */
  const reached = <Value>(ref: string, work: () => Promise<Value>): Promise<Value> =>
    work().catch((error) => {
      if (error instanceof EngineUnavailable) config.hosts.note(ref, undefined)
      throw error
    })

  return {
    name: 'host',
    preparation: [STORAGE_VERSION, config.plans ?? []].flat().join(' '),
    capabilities: {
      get backups() {
        return reach.mayOffer('backups')
      },
      loginNetworks: true,
      tellsPasswords: false,
      plainConnections: true,
    },
    places: () => places(reach),
    async create(spec, fence) {
      const api = await placeFor(config, reach, spec)
      await api.locked(spec.ref, fence, async (ask) => {
        await reach.place(spec.ref, api)
        const body = { ...bodyOf(spec), ...(spec.version !== undefined && { version: spec.version }) }
        await ask(Instance, { method: 'PUT', path: `/instances/${spec.ref}`, body })
      })
      await prepare(reach, spec.ref)
    },
    copy: (request, fence) => copy(reach, request, fence),
    remove: (ref, fence) => reach.removing(() => remove(config, reach, ref, fence)),
    async pause(ref, fence) {
      await change(ref, fence, 'pause').catch((error) => {
        // A database that does not exist counts as paused.
        if (!isGone(error)) throw error
      })
    },
    resume: (ref, fence) => change(ref, fence, 'resume'),
    async restart(ref, fence) {
      await change(ref, fence, 'restart')
      // The owner may have disallowed connections to it from another database.
      await withAdmin(await clusterOf(ref), (admin) => admin.rows(OPEN), 'template1')
    },
    setPassword: async (ref, password) => setOwnerPassword(await clusterOf(ref), password),
    diff: (request) => diff(clusterOf, request),
    health: (ref, timeoutMs) => healthWithin(timeoutMs, healthOf(reach, ref)),
    version: async (ref) => (await found(reach, ref)).version,
    runSql: (request) =>
      reached(request.ref, async () => runSqlAt(await config.hosts.of(request.ref), config.egress, request)),
    transaction: (request, work) =>
      reached(request.ref, async () => runTransaction(sessionsOf(await clusterOf(request.ref)), request, work)),
    runBatch: (request) => reached(request.ref, async () => runBatch(await clusterOf(request.ref), request)),
    async upgrade({ ref, sleepAfterSeconds }) {
      if (sleepAfterSeconds !== undefined) {
        const body = { after_seconds: sleepAfterSeconds }
        await (await reach.api(ref)).ask(Nothing, { method: 'PUT', path: `/instances/${ref}/sleep`, body })
      }
      await prepare(reach, ref)
    },
    async refs() {
      const names = (await instances(reach)).map(({ name }) => name).filter((name) => /^[a-z]{20}$/.test(name))
      return [...new Set([...names, ...(await states.refs())])]
    },
    settings: hostSettings(reach),
    logins: hostLogins(reach),
    upgrades: hostUpgrades(reach),
    bans: hostBans(reach),
    logs: hostLogs(reach),
    machines: () => machines(reach),
    async metrics(ref) {
      const { ask } = await reach.api(ref)
      return ask(z.string(), { method: 'GET', path: `/instances/${ref}/metrics?format=prometheus` })
    },
    backups: hostBackups(reach),
    moves: hostMoves(reach, states),
    get pointInTime() {
      return reach.mayOffer('backups') ? history : undefined
    },
    replicas: hostReplicas(reach, states),
    sizes: {
      get offered() {
        const known = reach.facts.known()
        return new Set<string>(known.length === 0 ? INSTANCE_SIZES : known.flatMap((facts) => facts.sizes))
      },
      set: (ref, size, fence) => reach.change(ref, fence, { method: 'PUT', path: '/size', body: { size } }),
    },
    connection({ ref, engineState }, role = HOST_NAMES.owner) {
      const { databaseHost, databasePort: port, databaseDomain } = reach.addressOf(engineState)
      const { database } = HOST_NAMES
      return databaseDomain === undefined
        ? { host: databaseHost, port, user: `${role}.${ref}`, database }
        : { host: `db.${ref}.${databaseDomain}`, port, user: role, database }
    },
  }
}

const bodyOf = ({ password, size, sleepAfterSeconds }: ProjectSpec) => ({
  password,
  ...(size !== undefined && { size }),
  ...(sleepAfterSeconds !== undefined && { sleep_after_seconds: sleepAfterSeconds }),
})

/** Chooses the host of a new project; an earlier attempt continues on its host. */
async function placeFor({ hosts, states }: HostEngineConfig, reach: Reach, spec: ProjectSpec): Promise<HostApi> {
  const begun = (await states.read(spec.ref))?.host
  if (begun !== undefined) return reach.apiAt(await hosts.named(begun))
  return spec.beside === undefined ? chooseHost(reach, spec) : reach.api(spec.beside)
}

/**
 * Removes the instance. Without a stored host, the project was never created or its removal was not recorded: then it is
 * removed from all hosts.
 */
async function remove(
  { hosts, states }: HostEngineConfig,
  reach: Reach,
  ref: string,
  fence: Fence | undefined,
): Promise<void> {
  const removeAt = (api: HostApi) =>
    api.locked(ref, fence, async (ask) => {
      await ask(Nothing, { method: 'DELETE', path: `/instances/${ref}` })
      await states.write(ref, undefined)
      hosts.note(ref, undefined)
    })
  const host = (await states.read(ref))?.host
  if (host === undefined) await reach.fromAll(removeAt)
  else await removeAt(reach.apiAt(await hosts.named(host)))
}

/** Copies a project on its parent's host, because the copy is made from the parent's files. */
async function copy(reach: Reach, { from, to, data }: CopyRequest, fence?: Fence): Promise<void> {
  const api = await reach.api(from)
  const { ref } = to
  const body = { from, data, ...bodyOf(to) }
  await api.locked(ref, fence, async (ask) => {
    await reach.place(ref, api)
    await ask(Nothing, { method: 'POST', path: `/instances/${ref}/copy`, body })
  })
  await prepare(reach, ref)
}

/** Upgrades the storage schema: an earlier version may have created the instance or its parent. */
const prepare = async ({ clusterOf }: Reach, ref: string) => withAdmin(await clusterOf(ref), ensureStorageSchema)

const LOCK_WAIT_MS = 2_000

/**
 * Resets the settings that the owner made for all sessions of the database, because some change the meaning of SQL. The lock
 * timeout is short, because a session that waits for a lock blocks those that come after it.
 */
const WITHOUT_OWNERS_SETTINGS = `
  SELECT count(set_config(name, boot_val, false)) FROM pg_settings
   WHERE source = 'database' AND context IN ('user', 'superuser') AND boot_val IS NOT NULL;
  SET statement_timeout = '1min';
  SET lock_timeout = ${LOCK_WAIT_MS}`

async function ensureStorageSchema(inside: Session): Promise<void> {
  const [row] = await inside.rows<{ version: string | null }>(STORAGE_VERSION_QUERY)
  if (row?.version === STORAGE_VERSION) return
  await inside.rows(WITHOUT_OWNERS_SETTINGS)
  await inside.rows(storageSchema('services').join(';\n'))
}

const OPEN = `ALTER DATABASE ${HOST_NAMES.database} WITH ALLOW_CONNECTIONS true CONNECTION LIMIT -1 IS_TEMPLATE false`

async function found(reach: Reach, ref: string) {
  return (await reach.api(ref)).ask(Instance, { method: 'GET', path: `/instances/${ref}` })
}

const CLOSED = 'the database accepts no connections'

/** The state that the host reports. Connecting to the database would wake it. */
async function healthOf(reach: Reach, ref: string): Promise<EngineHealth> {
  try {
    const { state, error } = await found(reach, ref)
    if (state === 'paused') return { healthy: false, error: CLOSED }
    // A running server has an error while its disk is not writable.
    if (state === 'failed' || error) return { healthy: false, error: error ?? CLOSED }
    return { healthy: true, ...(state === 'asleep' && { isAsleep: true }) }
  } catch (error) {
    if (!isGone(error)) throw error
    return { healthy: false, error: GONE }
  }
}

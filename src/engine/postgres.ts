import { databaseBackups, dropBackups } from './backup.ts'
import { runBatch } from './batch.ts'
import { sessionsOf } from './cluster-sessions.ts'
import { copyProject } from './copy/copy.ts'
import { dropLink } from './copy/link.ts'
import { UNFINISHED } from './copy/unfinished.ts'
import {
  dropDatabase,
  endAllSessions,
  ensureDatabase,
  prepareAsOwner,
  setConnectable,
  withDatabase,
} from './database.ts'
import { diff } from './diff/diff.ts'
import { endPresentSessions, ofProject } from './ending.ts'
import { type EngineHealth, EngineUnavailable, type Fence, type ProjectEngine, type ProjectSpec } from './engine.ts'
import { healthWithin, serverVersion } from './health.ts'
import { temporaryLogins } from './logins.ts'
import { projectNames } from './names.ts'
import { allowLogin, dropRoles, ensureRoles, ensureStorageRole, refuseLogin, setOwnerPassword } from './roles.ts'
import { runSql, SQL_TIMEOUT_MS_MAX } from './run.ts'
import { type Cluster, type Server, type Session, withAdmin } from './session.ts'
import { databaseSettings } from './settings.ts'
import { ensureCluster, TEMPLATE } from './template.ts'
import { runTransaction } from './transaction.ts'
import { upgradeDatabase } from './upgrade.ts'

interface PostgresEngineConfig extends Server {
  /** Where users reach the cluster with a client of their own. */
  host: string
  port: number
}

/**
 * One database per project on a shared Postgres cluster (16 or newer).
 *
 * A project's owner sees no other project's data, settings or activity. What Postgres cannot hide: whether a role or a
 * database of a known name exists, and the names behind object ids (`oid::regrole`). The views that hide the rest live
 * in the template's catalogue, so `pg_upgrade` or a restored dump brings back the stock ones.
 */
export function createPostgresEngine(config: PostgresEngineConfig): ProjectEngine {
  return {
    name: 'postgres',
    preparation: TEMPLATE,
    capabilities: {
      pause: true,
      backups: true,
      loginNetworks: true,
      tellsPasswords: false,
      reachesPaused: true,
      plainConnections: true,
    },
    create: (spec, fence) => create(config, spec, fence),
    copy: (request, fence) =>
      withProject(config, request.to.ref, fence, (admin) => copyProject(config, admin, request)),
    remove: (ref, fence) => remove(config, ref, fence),
    pause: (ref, fence) => pause(config, ref, fence),
    resume: (ref, fence) => resume(config, ref, fence),
    restart: (ref, fence) => restart(config, ref, fence),
    setPassword: (ref, password) => withProject(config, ref, undefined, () => setOwnerPassword(config, ref, password)),
    diff: (request) => diff(async (ref) => clusterOf(config, ref), request),
    health: (ref, timeoutMs) =>
      healthWithin(
        timeoutMs,
        withAdmin(config, (admin) => stateOf(admin, ref)),
      ),
    version: () => serverVersion(config),
    runSql: async (request) => (await runSql(sessionsOf(clusterOf(config, request.ref)), request)).join(''),
    transaction: (request, work) => runTransaction(sessionsOf(clusterOf(config, request.ref)), request, work),
    runBatch: (request) => runBatch(config, request),
    upgrade: (spec) => upgrade(config, spec),
    refs: () => refs(config),
    sweep: () => sweep(config),
    settings: databaseSettings(config, (ref, work) => withProject(config, ref, undefined, work)),
    logins: temporaryLogins(config, (ref, fence, work) => withProject(config, ref, fence, work)),
    backups: databaseBackups(config, (database, fence, work) => withDatabase(config, database, fence, work)),
    connection({ ref }) {
      const { owner, database } = projectNames(ref)
      return { host: config.host, port: config.port, user: owner, database }
    },
  }
}

const clusterOf = (server: Server, ref: string): Cluster => ({ ...server, names: projectNames(ref) })

async function create(cluster: Server, spec: ProjectSpec, fence?: Fence): Promise<void> {
  const names = projectNames(spec.ref)
  await withProject(cluster, spec.ref, fence, async (admin) => {
    await ensureCluster(cluster, admin)
    await ensureRoles(admin, spec.ref, spec)
    await ensureStorageRole(admin, names, spec.runnerPassword)
    const isNew = await ensureDatabase(admin, names)
    if (!isNew) await upgradeDatabase(cluster, admin, names)
    await prepareAsOwner(cluster, names, spec.runnerPassword)
  })
}

/** For projects from before: the login role of the services, its way in, and all that a new database has, each as it must be. */
async function upgrade(cluster: Server, { ref, runnerPassword }: { ref: string; runnerPassword: string }) {
  const names = projectNames(ref)
  await withProject(cluster, ref, undefined, async (admin) => {
    const { healthy, error = '' } = await stateOf(admin, ref)
    // The role of a paused project must stay closed with it.
    if (!healthy) throw new EngineUnavailable(error)
    await ensureCluster(cluster, admin)
    await ensureStorageRole(admin, names, runnerPassword)
    await admin.rows(`GRANT CONNECT ON DATABASE ${names.database} TO ${names.storage}`)
    await upgradeDatabase(cluster, admin, names)
  })
}

async function remove(cluster: Server, ref: string, fence?: Fence): Promise<void> {
  const names = projectNames(ref)
  await withProject(cluster, ref, fence, async (admin) => {
    await refuseLogin(admin, names)
    await endAllSessions(admin, names)
    await dropDatabase(admin, names)
    await dropBackups(admin, names)
    await dropLink(admin, names)
    await dropRoles(admin, names)
  })
}

async function pause(cluster: Server, ref: string, fence?: Fence): Promise<void> {
  const names = projectNames(ref)
  await withProject(cluster, ref, fence, async (admin) => {
    await refuseLogin(admin, names)
    await setConnectable(admin, names, false)
    await endAllSessions(admin, names)
  })
}

async function resume(cluster: Server, ref: string, fence?: Fence): Promise<void> {
  const names = projectNames(ref)
  await withProject(cluster, ref, fence, async (admin) => {
    await setConnectable(admin, names, true)
    await allowLogin(admin, names)
  })
}

/** Opens it, too, where its owner has closed it to everybody, and so to himself. */
async function restart(cluster: Server, ref: string, fence?: Fence): Promise<void> {
  const names = projectNames(ref)
  await withProject(cluster, ref, fence, async (admin) => {
    await endPresentSessions(admin, ofProject(names))
    const { healthy } = await stateOf(admin, ref)
    if (healthy) return
    await setConnectable(admin, names, true)
    await allowLogin(admin, names)
  })
}

/** Operations on one project wait for each other, in whichever process they run. */
function withProject<Value>(
  cluster: Server,
  ref: string,
  fence: Fence | undefined,
  work: (admin: Session) => Promise<Value>,
): Promise<Value> {
  return withDatabase(cluster, projectNames(ref).database, fence, work)
}

/** Read from the catalogue: a superuser's session in a project's database would run under that owner's settings. */
async function stateOf(admin: Session, ref: string): Promise<EngineHealth> {
  const { database, owner } = projectNames(ref)
  const [row] = await admin.rows<{ connectable: boolean }>(
    `SELECT datallowconn AND datconnlimit <> 0 AND datconnlimit <> -2 AND rolcanlogin AS connectable
       FROM pg_database JOIN pg_roles ON rolname = $2 WHERE datname = $1`,
    [database, owner],
  )
  if (!row) return { healthy: false, error: 'the database does not exist' }
  return row.connectable ? { healthy: true } : { healthy: false, error: 'the database accepts no connections' }
}

async function refs(cluster: Server): Promise<string[]> {
  const rows = await withAdmin(cluster, (admin) =>
    admin.rows<{ ref: string }>(
      `SELECT DISTINCT substring(name FROM '^p_([a-z]{20})(_|$)') AS ref
         FROM (SELECT datname AS name FROM pg_database UNION ALL SELECT rolname FROM pg_roles) named
        WHERE name ~ '^p_[a-z]{20}(_|$)' ORDER BY 1`,
    ),
  )
  return rows.map(({ ref }) => ref)
}

/** As long as its way into the parent is open. */
const COPY_MS_MAX = 24 * 3_600_000

async function sweep(cluster: Server): Promise<number> {
  return withAdmin(cluster, async (admin) => {
    const ended = await endOldSessions(admin)
    for (const { statement } of await admin.rows<{ statement: string }>(STRAY_DATABASES)) await admin.rows(statement)
    return ended
  })
}

/** Who gives all that he owns to a role in which others are too (REASSIGN OWNED) gives his database away with it: it comes back. */
const STRAY_DATABASES = `
  SELECT format('ALTER DATABASE %1$I OWNER TO %1$I', datname) AS statement FROM pg_database JOIN pg_roles AS own ON rolname = datname
   WHERE datname ~ '^p_[a-z]{20}$' AND datdba <> own.oid`

async function endOldSessions(admin: Session): Promise<number> {
  const rows = await admin.rows<{ ended: boolean }>(
    `SELECT pg_terminate_backend(pid) AS ended
         FROM pg_stat_activity JOIN pg_database ON pg_database.oid = datid
        WHERE usename ~ '^p_[a-z]{20}_(sql|read)$' AND backend_start < now() - interval '1 millisecond' *
          CASE WHEN shobj_description(datid, 'pg_database') = $2 THEN $3::float8 ELSE $1::float8 END`,
    [SQL_TIMEOUT_MS_MAX + 30_000, UNFINISHED, COPY_MS_MAX],
  )
  return rows.filter(({ ended }) => ended).length
}

import { changeAfterEndingSessions, endSessions, sessionsOfRoles } from './end-sessions.ts'
import { EngineUnavailable } from './engine-errors.ts'
import type { Fence } from './fence.ts'
import { type ProjectNames, quoteLiteral, quoteLiterals, TEMPORARY_LOGIN } from './names.ts'
import { dropRole, ownerPasswordStatement, secretFor } from './roles.ts'
import { RANDOM_PASSWORD_ITERATIONS } from './scram.ts'
import { type Cluster, type Session, withAdmin } from './session.ts'

/** The rights of a login: those of the owner, read access to everything, or those of one of the API's roles. */
export type Power = 'owner' | 'reader' | 'anon' | 'authenticated' | 'service_role'

export function powerOf({ owner, reader }: ProjectNames, name: string): Power | undefined {
  const powers: Record<string, Power> = {
    postgres: 'owner',
    [owner]: 'owner',
    supabase_read_only_user: 'reader',
    [reader]: 'reader',
    anon: 'anon',
    authenticated: 'authenticated',
    service_role: 'service_role',
  }
  return Object.hasOwn(powers, name) ? powers[name] : undefined
}

type LoginKind = 'cli' | 'jit'

export interface LoginSpec {
  ref: string
  /** Role name, from `loginRole`. */
  role: string
  power: Power
  /** Random, so that few hash iterations are enough. */
  password: string
  expiresAt: Date
  /** In CIDR notation; absent = any network. */
  networks?: readonly string[] | undefined
}

/** Login roles of a project that expire. */
export interface TemporaryLogins {
  /**
   * The rights that a role name stands for, either in the project's database or in the API; undefined for unknown
   * names.
   */
  powerOf(ref: string, name: string): Power | undefined
  /** Creates or updates the login without ending its sessions. Rejects with `Superseded` if the fence refuses. */
  put(login: LoginSpec, fence: Fence): Promise<void>
  /**
   * Ends the logins and their sessions; their objects go to the owner. A login with the owner's rights may have changed the
   * owner's password to keep its access; the password is then set back to `ownerPassword()`. `selectDue` runs under the
   * project's lock and returns the roles that are still to end, because a login may have been renewed meanwhile.
   */
  end(
    ref: string,
    roles: readonly string[],
    ownerPassword: () => Promise<string>,
    selectDue?: (roles: readonly string[]) => Promise<readonly string[]>,
  ): Promise<void>
  /** The roles of the logins that have sessions. */
  listInUse(ref: string): Promise<string[]>
}

const CONNECTIONS_MAX = 10
const RESTORE_ROUNDS_MAX = 20

/** The role name of a login. */
export function loginRole(kind: LoginKind, letters: string): string {
  const role = `${kind}_login_${letters}`
  if (!TEMPORARY_ROLE.test(role)) throw new Error('Invalid login name: it must end with 8 lowercase letters')
  return role
}

interface ClusterAccess {
  clusterOf(ref: string): Promise<Cluster>
  /** Whether the database exists, paused or not. */
  exists(ref: string): Promise<boolean>
  /** Ends the sessions of roles on the project's replicas. */
  endReplicaSessions?(ref: string, roles: readonly string[]): Promise<void>
  /** Runs `work` under the project's lock. */
  withProjectLock<Value>(
    cluster: Cluster,
    project: { ref: string; fence: Fence | undefined },
    work: (admin: Session) => Promise<Value>,
  ): Promise<Value>
}

export const temporaryLogins = ({
  clusterOf,
  exists,
  endReplicaSessions = async () => {},
  withProjectLock,
}: ClusterAccess): Omit<TemporaryLogins, 'powerOf'> => ({
  async put(login, fence) {
    const cluster = await clusterOf(login.ref)
    await withProjectLock(cluster, { ref: login.ref, fence }, (admin) => putLogin(cluster, admin, login))
  },
  async end(ref, requested, ownerPassword, selectDue = async (roles) => roles) {
    try {
      const cluster = await clusterOf(ref)
      await withProjectLock(cluster, { ref, fence: undefined }, async (admin) =>
        endLogins(cluster, admin, {
          roles: await selectDue(requested),
          ownerPassword,
          endReplicaSessions: (ended) => endReplicaSessions(ref, ended),
        }),
      )
    } catch (error) {
      // Logins end with their database.
      if (!(error instanceof EngineUnavailable) || (await exists(ref))) throw error
    }
  },
  async listInUse(ref) {
    const rows = await withAdmin(await clusterOf(ref), (admin) =>
      admin.rows<{ usename: string }>(
        `SELECT DISTINCT usename FROM pg_stat_activity WHERE usename ~ ${quoteLiteral(TEMPORARY_LOGIN)}`,
      ),
    )
    return rows.map(({ usename }) => usename)
  },
})

async function putLogin(cluster: Cluster, admin: Session, login: LoginSpec): Promise<void> {
  const { role, power, password, expiresAt, networks } = login
  const { database, owner, reader } = cluster.names
  const [existing] = await admin.rows<{ exists: boolean; password: string }>(
    `SELECT to_regrole(${quoteLiteral(role)}) IS NOT NULL AS exists,
        coalesce(${commentOf(role)} ->> 'password', (${passwordDigest(owner)})) AS password`,
  )
  const { administrator } = cluster
  // An existing login keeps the digest of the owner's password from when it was created.
  const bounds = { networks, ...(power === 'owner' && role.startsWith('jit_') && { password: existing?.password }) }
  const secret = await secretFor(cluster, password, RANDOM_PASSWORD_ITERATIONS)
  const options = `CONNECTION LIMIT ${CONNECTIONS_MAX} VALID UNTIL ${quoteLiteral(expiresAt.toISOString())}`
  const attributes = administrator ? '' : 'NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION'
  const define = (row: string) =>
    `${existing?.exists ? 'ALTER' : 'CREATE'} ROLE ${role} WITH LOGIN INHERIT ${attributes} ${row} ${options} PASSWORD ${quoteLiteral(secret)};
     ALTER ROLE ${role} RESET ALL`
  const granted = power === 'owner' ? owner : power
  const roleStatements =
    power === 'reader'
      ? [
          // The rights without SET: a login that could switch to the reader's role could set its password.
          define('BYPASSRLS'),
          `ALTER ROLE ${role} SET default_transaction_read_only = on`,
          `GRANT ${reader} TO ${role} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
        ]
      : [
          define('NOBYPASSRLS'),
          // Objects that the login creates then belong to a permanent role.
          `ALTER ROLE ${role} SET role = ${quoteLiteral(granted)}`,
          `GRANT ${granted} TO ${role} WITH INHERIT FALSE, SET TRUE, ADMIN FALSE`,
        ]
  await admin.rows(
    [
      ...roleStatements,
      ...(administrator ? [`GRANT ${role} TO ${administrator} WITH INHERIT TRUE, SET TRUE`] : []),
      `GRANT CONNECT ON DATABASE ${database} TO ${role}`,
      `COMMENT ON ROLE ${role} IS ${quoteLiteral(JSON.stringify(bounds))}`,
    ].join('; '),
  )
}

const commentOf = (role: string) => `shobj_description(to_regrole(${quoteLiteral(role)}), 'pg_authid')::jsonb`

/**
 * A digest of the stored verifier. It differs for every password set, and reveals nothing because of the random salt.
 */
const passwordDigest = (role: string) => `SELECT md5(rolpassword) FROM pg_authid WHERE rolname = ${quoteLiteral(role)}`

interface EndRequest {
  roles: readonly string[]
  ownerPassword: () => Promise<string>
  endReplicaSessions(roles: readonly string[]): Promise<void>
}

async function endLogins(cluster: Cluster, admin: Session, request: EndRequest): Promise<void> {
  const { roles: requested, endReplicaSessions } = request
  const logins = requested.filter((role) => TEMPORARY_ROLE.test(role))
  if (logins.length === 0) return
  const existing = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(logins)})`,
  )
  const roles = existing.map(({ rolname }) => rolname)
  const failures: unknown[] = []
  // A failure for one role must not prevent the others from ending.
  const recordFailure = (error: unknown) => void failures.push(error)
  for (const role of roles) await disableLogin(admin, role).catch(recordFailure)
  // Roles that are gone are included: an earlier call may have dropped them and failed here.
  await endReplicaSessions(logins).catch(recordFailure)
  const changed = await admin.rows(
    `SELECT FROM pg_roles WHERE rolname IN (${quoteLiterals(logins)})
        AND shobj_description(oid, 'pg_authid')::jsonb ->> 'password' <> (${passwordDigest(cluster.names.owner)})`,
  )
  // Without these failures recorded, the owner's sessions would end again with every attempt.
  const endReplicas = (ended: readonly string[]) => endReplicaSessions(ended).catch(recordFailure)
  if (changed.length > 0) await restoreOwnerPassword(cluster, admin, { ...request, endReplicaSessions: endReplicas })
  for (const role of roles) await dropLogin(cluster, admin, role).catch(recordFailure)
  if (failures.length > 0) throw failures[0]
}

async function disableLogin(admin: Session, role: string): Promise<void> {
  await changeAfterEndingSessions(admin, sessionsOfRoles([role]), `ALTER ROLE ${role} NOLOGIN`)
  await endSessions(admin, sessionsOfRoles([role]))
}

/** Ends the owner's sessions too: those that logged in with the changed password could set it again. */
async function restoreOwnerPassword(
  cluster: Cluster,
  admin: Session,
  { ownerPassword, endReplicaSessions }: EndRequest,
): Promise<void> {
  const { owner } = cluster.names
  const digest = async () => (await admin.rows<{ md5: string }>(passwordDigest(owner)))[0]?.md5
  for (let round = 0; round < RESTORE_ROUNDS_MAX; round += 1) {
    await resetOwnerPassword(cluster, admin, ownerPassword)
    const set = await digest()
    await endSessions(admin, sessionsOfRoles([owner]))
    await endReplicaSessions([owner])
    if ((await digest()) === set) return
  }
}

/** Reads the stored password again after setting it: a concurrent change is stored before it is applied. */
async function resetOwnerPassword(
  cluster: Cluster,
  admin: Session,
  ownerPassword: EndRequest['ownerPassword'],
): Promise<void> {
  const sessions = sessionsOfRoles([cluster.names.owner])
  let set: string | undefined
  for (let stored = await ownerPassword(); stored !== set; stored = await ownerPassword()) {
    await changeAfterEndingSessions(admin, sessions, await ownerPasswordStatement(cluster, stored))
    set = stored
  }
}

const TEMPORARY_ROLE = new RegExp(TEMPORARY_LOGIN)

/** A role that owns objects in a closed database is disabled now and dropped later. */
async function dropLogin(cluster: Cluster, admin: Session, role: string): Promise<void> {
  const owning = await admin.rows<{ database: string }>(
    `SELECT DISTINCT datname AS database FROM pg_shdepend JOIN pg_database ON pg_database.oid = dbid
      WHERE refclassid = 'pg_authid'::regclass AND refobjid = ${quoteLiteral(role)}::regrole AND datallowconn`,
  )
  const reassign = `SET ROLE NONE; SET default_transaction_read_only = off; REASSIGN OWNED BY ${role} TO ${cluster.names.owner}`
  for (const { database } of owning) {
    await withAdmin(cluster, (inside) => inside.rows(`${reassign}; DROP OWNED BY ${role}`), database)
  }
  await admin.rows(`DROP OWNED BY ${role}`)
  await dropRole(admin, role)
}

/**
 * Disables all temporary logins: credentials for a database must not open a copy of it. Returns those that were enabled.
 */
export async function disableLogins(admin: Session): Promise<string[]> {
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname ~ ${quoteLiteral(TEMPORARY_LOGIN)} AND rolcanlogin`,
  )
  for (const { rolname } of rows) await admin.rows(`ALTER ROLE ${rolname} NOLOGIN`)
  return rows.map(({ rolname }) => rolname)
}

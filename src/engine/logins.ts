import { changeEnding, endSessions, ofRoles } from './ending.ts'
import type { Fence } from './engine.ts'
import { ensureLoginCheck, hasLoginCheck } from './login-check.ts'
import { projectNames, quoteLiteral, quoteLiterals, TEMPORARY_LOGIN } from './names.ts'
import { changeOfOwnerPassword, definition, dropRole, plainDefinition, secretFor } from './roles.ts'
import { RANDOM_PASSWORD_ITERATIONS } from './scram.ts'
import { type Server, type Session, withAdmin } from './session.ts'

/** What a login may do: all that the owner may, read everything, or what one of the API's roles may. */
export type Power = 'owner' | 'reader' | 'anon' | 'authenticated' | 'service_role'

/** By the name of a role in the project's database, or the one that clients know it by; undefined for any other. */
export function powerOf(ref: string, name: string): Power | undefined {
  const { owner, reader } = projectNames(ref)
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

export type LoginKind = 'cli' | 'jit'

export interface LoginSpec {
  ref: string
  /** From `loginRole`. */
  role: string
  power: Power
  /** Random, so that few rounds of hashing do. */
  password: string
  expiresAt: Date
  /** In CIDR notation; absent for any. */
  networks?: readonly string[] | undefined
}

/** Login roles of a project that end. */
export interface TemporaryLogins {
  /** Makes the login, or makes it anew and leaves its sessions; given up with `Superseded` where the fence refuses. */
  put(login: LoginSpec, fence: Fence): Promise<void>
  /**
   * Ends the logins with their sessions; what they left behind goes to the owner. Who was let in as the owner could have set
   * the owner's password, to come back by it: then that becomes again what `ownerPassword` says.
   */
  end(ref: string, roles: readonly string[], ownerPassword: () => Promise<string>): Promise<void>
  /** The roles of all projects. */
  list(): Promise<string[]>
}

const CONNECTIONS_MAX = 10
const TAKE_BACK_ROUNDS_MAX = 20

export const loginRole = (ref: string, kind: LoginKind, letters: string): string => {
  const role = `${projectNames(ref).owner}_${kind}_${letters}`
  if (!/_[a-z]{8}$/.test(role)) throw new Error('The name of a login ends with 8 letters')
  return role
}

export const projectOfLogin = (role: string): string => role.slice(2, 22)

type WithProject = <Value>(
  ref: string,
  fence: Fence | undefined,
  work: (admin: Session) => Promise<Value>,
) => Promise<Value>

export const temporaryLogins = (cluster: Server, withProject: WithProject): TemporaryLogins => ({
  put: (login, fence) => withProject(login.ref, fence, (admin) => put(cluster, admin, login)),
  end: (ref, roles, ownerPassword) =>
    withProject(ref, undefined, (admin) => end(cluster, admin, { ref, roles, ownerPassword })),
  list: () => withAdmin(cluster, list),
})

async function put(cluster: Server, admin: Session, login: LoginSpec): Promise<void> {
  const { ref, role, power, password, expiresAt, networks } = login
  const { database, owner, reader } = projectNames(ref)
  const [found] = await admin.rows<{ checked: boolean; known: boolean; password: string }>(
    `SELECT to_jsonb(pg_database) -> 'dathasloginevt' = 'true' AS checked,
        to_regrole(${quoteLiteral(role)}) IS NOT NULL AS known,
        coalesce(${comment(role)} ->> 'password', (${passwordOf(owner)})) AS password
       FROM pg_database WHERE datname = ${quoteLiteral(database)}`,
  )
  const { administrator } = cluster
  if (!administrator && !found?.checked && (networks || (await hasLoginCheck(admin)))) {
    await withAdmin(cluster, ensureLoginCheck, database)
  }
  // Of a login that was there before, what stood when it was first opened.
  const bounds = { networks, ...(power === 'owner' && role.includes('_jit_') && { password: found?.password }) }
  const secret = await secretFor(cluster, password, RANDOM_PASSWORD_ITERATIONS)
  const options = `CONNECTION LIMIT ${CONNECTIONS_MAX} VALID UNTIL ${quoteLiteral(expiresAt.toISOString())}`
  const existing = new Set(found?.known ? [role] : [])
  const describe = administrator ? plainDefinition : definition
  const define = (row: string) => describe(existing, role, secret, `${row} ${options}`)
  const granted = power === 'owner' ? owner : power
  const powers =
    power === 'reader'
      ? [
          // Its own powers, not the reader's role: who could take that on could give it a password of his own.
          define('BYPASSRLS'),
          `ALTER ROLE ${role} SET default_transaction_read_only = on`,
          `GRANT ${reader} TO ${role} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
        ]
      : [
          define('NOBYPASSRLS'),
          // So that whatever it makes belongs to the role that stays.
          `ALTER ROLE ${role} SET role = ${quoteLiteral(granted)}`,
          `GRANT ${granted} TO ${role} WITH INHERIT FALSE, SET TRUE, ADMIN FALSE`,
        ]
  await admin.rows(
    [
      ...powers,
      ...(administrator ? [`GRANT ${role} TO ${administrator} WITH INHERIT TRUE, SET TRUE`] : []),
      `GRANT CONNECT ON DATABASE ${database} TO ${role}`,
      `COMMENT ON ROLE ${role} IS ${quoteLiteral(JSON.stringify(bounds))}`,
    ].join('; '),
  )
}

const comment = (role: string) => `shobj_description(to_regrole(${quoteLiteral(role)}), 'pg_authid')::jsonb`

/** A digest tells two passwords apart and gives nothing away, as each is stored with random salt. */
const passwordOf = (role: string) => `SELECT md5(rolpassword) FROM pg_authid WHERE rolname = ${quoteLiteral(role)}`

interface Ending {
  ref: string
  roles: readonly string[]
  ownerPassword: () => Promise<string>
}

async function end(cluster: Server, admin: Session, { ref, roles: ended, ownerPassword }: Ending): Promise<void> {
  const logins = ended.filter((role) => IS_LOGIN.test(role))
  if (logins.length === 0) return
  const found = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(logins)})`,
  )
  const roles = found.map(({ rolname }) => rolname)
  if (roles.length === 0) return
  const failures: unknown[] = []
  // One that fails keeps no other.
  const noted = (error: unknown) => void failures.push(error)
  for (const role of roles) await close(admin, role).catch(noted)
  const changed = await admin.rows(
    `SELECT FROM pg_roles WHERE rolname IN (${quoteLiterals(roles)})
        AND shobj_description(oid, 'pg_authid')::jsonb ->> 'password' <> (${passwordOf(projectNames(ref).owner)})`,
  )
  if (changed.length > 0) await takeBackOwner(cluster, admin, { ref, ownerPassword })
  for (const role of roles) await drop(cluster, admin, role).catch(noted)
  if (failures.length > 0) throw failures[0]
}

async function close(admin: Session, role: string): Promise<void> {
  await changeEnding(admin, ofRoles([role]), `ALTER ROLE ${role} NOLOGIN`)
  await endSessions(admin, ofRoles([role]))
}

/** Who set the password may be in with it, and from there set it again; the services come as other roles. */
async function takeBackOwner(
  cluster: Server,
  admin: Session,
  { ref, ownerPassword }: Pick<Ending, 'ref' | 'ownerPassword'>,
): Promise<void> {
  const { owner } = projectNames(ref)
  const digest = async () => (await admin.rows<{ md5: string }>(passwordOf(owner)))[0]?.md5
  for (let round = 0; round < TAKE_BACK_ROUNDS_MAX; round += 1) {
    await resetOwnerPassword(cluster, admin, { ref, ownerPassword })
    const set = await digest()
    await endSessions(admin, ofRoles([owner]))
    if ((await digest()) === set) return
  }
}

/** Who changes it writes it down before he sets it: what is read after it was set is what must be. */
async function resetOwnerPassword(
  cluster: Server,
  admin: Session,
  { ref, ownerPassword }: Pick<Ending, 'ref' | 'ownerPassword'>,
): Promise<void> {
  const sessions = ofRoles([projectNames(ref).owner])
  let set: string | undefined
  for (let kept = await ownerPassword(); kept !== set; kept = await ownerPassword()) {
    await changeEnding(admin, sessions, await changeOfOwnerPassword(cluster, ref, kept))
    set = kept
  }
}

const IS_LOGIN = new RegExp(`^p_[a-z]{20}${TEMPORARY_LOGIN}`)

/** Where something of it lies in a database that is closed now, the role is left lifeless and dropped another time. */
async function drop(cluster: Server, admin: Session, role: string): Promise<void> {
  const left = await admin.rows<{ database: string }>(
    `SELECT DISTINCT datname AS database FROM pg_shdepend JOIN pg_database ON pg_database.oid = dbid
      WHERE refclassid = 'pg_authid'::regclass AND refobjid = ${quoteLiteral(role)}::regrole
        AND datallowconn AND datname ~ '^p_[a-z]{20}$'`,
  )
  for (const { database } of left) {
    const give = `SET ROLE NONE; SET default_transaction_read_only = off; REASSIGN OWNED BY ${role} TO ${database}`
    await withAdmin(cluster, (inside) => inside.rows(`${give}; DROP OWNED BY ${role}`), database)
  }
  await admin.rows(`DROP OWNED BY ${role}`)
  await dropRole(admin, role)
}

async function list(admin: Session): Promise<string[]> {
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolvaliduntil IS NOT NULL AND rolname ~ ${quoteLiteral(IS_LOGIN.source)}`,
  )
  return rows.map(({ rolname }) => rolname)
}

import { appMembership } from './app-roles.ts'
import { changeEnding, ofProject } from './ending.ts'
import { loginRoles, type ProjectNames, projectNames, quoteLiteral, quoteLiterals, TEMPORARY_LOGIN } from './names.ts'
import { CHOSEN_PASSWORD_ITERATIONS, RANDOM_PASSWORD_ITERATIONS, scramVerifier } from './scram.ts'
import { type Cluster, type Server, type Session, withAdmin } from './session.ts'
import { STORAGE_GROUP } from './storage/names.ts'

/** Cluster-wide roles without login that policies and grants name; `reader` opens what the template owns. */
export const READER_GROUP = 'pilothouse_reader'
export const API_ROLES = ['anon', 'authenticated', 'service_role']

export const OWNER_CONNECTIONS_MAX = 20
export const RUNNER_CONNECTIONS_MAX = 10
export const STORAGE_CONNECTIONS_MAX = 40
const TEMPORARY_FILES_MAX = '2GB'
export const STORAGE_TIMEOUT = '30s'

/** The login roles that SQL runs as, each as it must be, whatever was there before. */
export async function ensureRoles(
  admin: Session,
  ref: string,
  passwords: { password: string; runnerPassword: string },
): Promise<void> {
  const names = projectNames(ref)
  const { owner, runner, reader } = names
  const ownerSecret = await scramVerifier(passwords.password, CHOSEN_PASSWORD_ITERATIONS)
  const runnerSecret = await scramVerifier(passwords.runnerPassword, RANDOM_PASSWORD_ITERATIONS)
  const existing = await existingRoles(admin, names)
  const define = (role: string, secret: string, options: string) => definition(existing, role, secret, options)
  await admin.rows(
    [
      define(owner, ownerSecret, `NOBYPASSRLS CONNECTION LIMIT ${OWNER_CONNECTIONS_MAX}`),
      define(runner, runnerSecret, `NOBYPASSRLS CONNECTION LIMIT ${RUNNER_CONNECTIONS_MAX}`),
      define(reader, runnerSecret, `BYPASSRLS CONNECTION LIMIT ${RUNNER_CONNECTIONS_MAX}`),
      `ALTER ROLE ${reader} SET default_transaction_read_only = on`,
      unchecked(runner, reader),
      `GRANT ${API_ROLES.join(', ')} TO ${owner} WITH INHERIT FALSE, SET TRUE, ADMIN FALSE`,
      appMembership(owner),
      `GRANT ${owner} TO ${runner} WITH INHERIT TRUE, SET TRUE, ADMIN FALSE`,
      `GRANT ${READER_GROUP} TO ${reader} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
    ].join(';\n'),
  )
}

/** The login role of the storage server: reaches its tables, and whatever the API's roles may. */
export async function ensureStorageRole(admin: Session, names: ProjectNames, runnerPassword: string): Promise<void> {
  const { storage } = names
  const secret = await scramVerifier(runnerPassword, RANDOM_PASSWORD_ITERATIONS)
  const existing = await existingRoles(admin, names)
  await admin.rows(
    [
      definition(existing, storage, secret, `BYPASSRLS CONNECTION LIMIT ${STORAGE_CONNECTIONS_MAX}`),
      `ALTER ROLE ${storage} SET statement_timeout = '${STORAGE_TIMEOUT}'`,
      // Writers of one key wait for each other; under a stricter level of the owner's choice one of them would fail.
      `ALTER ROLE ${storage} SET default_transaction_isolation = 'read committed'`,
      unchecked(storage),
      // Its own statements must never call what the project's owner has made.
      `ALTER ROLE ${storage} SET search_path = 'pg_catalog'`,
      `GRANT ${STORAGE_GROUP} TO ${storage} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
      `GRANT ${API_ROLES.join(', ')} TO ${storage} WITH INHERIT FALSE, SET TRUE, ADMIN FALSE`,
    ].join(';\n'),
  )
}

/** The check of logins is not for the services of a project: each request of theirs would pay for it. */
export const unchecked = (...roles: string[]): string => {
  const skip = roles.map((role) => `ALTER ROLE ${role} SET event_triggers = off;`).join(' ')
  return `DO $$ BEGIN IF current_setting('server_version_num')::int >= 170000 THEN ${skip} END IF; END $$`
}

export const definition = (existing: Set<string>, role: string, secret: string, options: string): string =>
  `${existing.has(role) ? 'ALTER' : 'CREATE'} ROLE ${role} WITH LOGIN INHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE ` +
  `NOREPLICATION ${options} PASSWORD ${quoteLiteral(secret)}; ` +
  `ALTER ROLE ${role} RESET ALL; ALTER ROLE ${role} SET temp_file_limit = '${TEMPORARY_FILES_MAX}'`

/** Without what superusers alone may set; whom another makes has none of it at first. */
export const plainDefinition = (existing: Set<string>, role: string, secret: string, options: string): string =>
  `${existing.has(role) ? 'ALTER' : 'CREATE'} ROLE ${role} WITH LOGIN INHERIT ${options} PASSWORD ${quoteLiteral(secret)}; ` +
  `ALTER ROLE ${role} RESET ALL`

/** The value that a role's password is set to. */
export const secretFor = async ({ plainPasswords }: Server, password: string, iterations: number): Promise<string> =>
  plainPasswords ? password : scramVerifier(password, iterations)

export async function setOwnerPassword(cluster: Server, ref: string, password: string): Promise<void> {
  const change = await changeOfOwnerPassword(cluster, ref, password)
  await withAdmin(cluster, (admin) => admin.rows(change))
}

export async function changeOfOwnerPassword(cluster: Server, ref: string, password: string): Promise<string> {
  const secret = await secretFor(cluster, password, CHOSEN_PASSWORD_ITERATIONS)
  return `ALTER ROLE ${projectNames(ref).owner} PASSWORD ${quoteLiteral(secret)}`
}

/** Undoes what SQL can do to the passwords of the roles that it is started by. */
export async function repairRunners(cluster: Cluster, runnerPassword: string): Promise<void> {
  const { names } = cluster
  const secret = quoteLiteral(await secretFor(cluster, runnerPassword, RANDOM_PASSWORD_ITERATIONS))
  await withAdmin(cluster, async (admin) => {
    const existing = await admin.rows<{ rolname: string }>(
      `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals([names.runner, names.reader, names.storage])})`,
    )
    const runners = existing.map(({ rolname }) => rolname)
    if (runners.length > 0) await admin.rows(runners.map((role) => `ALTER ROLE ${role} PASSWORD ${secret}`).join('; '))
  })
}

export async function allowLogin(admin: Session, names: ProjectNames): Promise<void> {
  const alter = [...(await existingRoles(admin, names))].map((role) => `ALTER ROLE ${role} LOGIN`)
  if (alter.length > 0) await admin.rows(alter.join('; '))
}

/** Sessions end on the way, but some may have begun meanwhile. */
export async function refuseLogin(admin: Session, names: ProjectNames): Promise<void> {
  for (const role of await existingRoles(admin, names)) {
    await changeEnding(admin, ofProject(names), `ALTER ROLE ${role} NOLOGIN`)
  }
}

export async function dropRoles(admin: Session, names: ProjectNames): Promise<void> {
  const existing = await existingRoles(admin, names)
  // The temporary ones are members of the others.
  for (const role of [...existing].sort((a, b) => b.length - a.length)) await dropRole(admin, role)
}

/** Another project may have granted this role something, which keeps it in the catalogue: then it is left lifeless. */
export async function dropRole(admin: Session, role: string): Promise<void> {
  try {
    await admin.rows(`DROP ROLE ${role}`)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === '2BP01')) throw error
    await admin.rows(`ALTER ROLE ${role} WITH NOLOGIN NOBYPASSRLS PASSWORD NULL; ALTER ROLE ${role} RESET ALL`)
    await revokeMemberships(admin, role)
  }
}

async function revokeMemberships(admin: Session, role: string): Promise<void> {
  const memberships = await admin.rows<{ revoke: string }>(
    `SELECT format('REVOKE %I FROM %I', roleid::regrole, member::regrole) AS revoke FROM pg_auth_members
      WHERE member = ${quoteLiteral(role)}::regrole OR roleid = ${quoteLiteral(role)}::regrole`,
  )
  for (const { revoke } of memberships) await admin.rows(revoke)
}

/** Temporary logins too. */
async function existingRoles(admin: Session, names: ProjectNames): Promise<Set<string>> {
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(loginRoles(names))})
        OR (starts_with(rolname, ${quoteLiteral(`${names.owner}_`)}) AND rolname ~ ${quoteLiteral(TEMPORARY_LOGIN)})`,
  )
  return new Set(rows.map(({ rolname }) => rolname))
}

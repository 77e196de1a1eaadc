import { quoteLiteral, quoteLiterals } from './names.ts'
import { CHOSEN_PASSWORD_ITERATIONS, RANDOM_PASSWORD_ITERATIONS, scramVerifier } from './scram.ts'
import { type Cluster, type Server, type Session, withAdmin } from './session.ts'

/** Role without login that grants read access to objects of the services, where these have a login for each project. */
export const READER_GROUP = 'pilothouse_reader'
/** Role without login that grants the storage server's logins access to its tables, where there is a login for each project. */
export const STORAGE_GROUP = 'pilothouse_storage'
/** Roles without login that policies and grants of apps refer to. */
export const API_ROLES = ['anon', 'authenticated', 'service_role']

export const OWNER_CONNECTIONS_MAX = 20
export const RUNNER_CONNECTIONS_MAX = 10
export const STORAGE_CONNECTIONS_MAX = 40
export const STORAGE_TIMEOUT = '30s'

/** The value for `PASSWORD` in SQL: the plain text or a verifier, as the server requires. */
export const secretFor = async ({ plainPasswords }: Server, password: string, iterations: number): Promise<string> =>
  plainPasswords ? password : scramVerifier(password, iterations)

export async function setOwnerPassword(cluster: Cluster, password: string): Promise<void> {
  const change = await ownerPasswordStatement(cluster, password)
  await withAdmin(cluster, (admin) => admin.rows(change))
}

export async function ownerPasswordStatement(cluster: Cluster, password: string): Promise<string> {
  const secret = await secretFor(cluster, password, CHOSEN_PASSWORD_ITERATIONS)
  return `ALTER ROLE ${cluster.names.owner} PASSWORD ${quoteLiteral(secret)}`
}

/** Restores the passwords of the service roles: a query runs as such a role and can change its password. */
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

/** Drops a role, or disables it if grants in a closed database still refer to it. */
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

import type { ProjectSpec } from '../engine.ts'
import { APP_OWNER } from '../hosted-names.ts'
import { loginRoles, type ProjectNames, quoteLiteral, quoteLiterals } from '../names.ts'
import {
  API_ROLES,
  OWNER_CONNECTIONS_MAX,
  READER_GROUP,
  RUNNER_CONNECTIONS_MAX,
  STORAGE_CONNECTIONS_MAX,
  STORAGE_TIMEOUT,
} from '../roles.ts'
import { type Cluster, type Session, withAdmin } from '../session.ts'
import { SCHEMA_OWNER, STORAGE_GROUP, STORAGE_OWNER } from '../storage/names.ts'
import { passwordFailure } from './passwords.ts'
import { ensureSchemas, prepareAsOwner } from './schemas.ts'

/** The role that Neon makes with each project, and the database that it works from; both are the engine's alone. */
export const ADMIN = 'pilothouse'

/** Migrations grant rights to these too, for services that the project's owner may run. */
const APP_GRANTEES = ['authenticator', 'dashboard_user', 'supabase_auth_admin', SCHEMA_OWNER]

/** Sets both passwords of a prepared project, and leaves its schemas as the owner has changed them. */
export async function prepareRoles(cluster: Cluster, spec: ProjectSpec): Promise<void> {
  await withAdmin(cluster, (admin) => ensureRoles(admin, cluster.names, spec))
}

/**
 * Makes a project's roles and its database, each as it must be, whatever was there before. Neon's most powerful role is no
 * superuser: it may use what it created, and the rights of the roles that it granted to itself.
 */
export async function prepareDatabase(cluster: Cluster, spec: ProjectSpec): Promise<void> {
  const { names } = cluster
  await withAdmin(cluster, async (admin) => {
    await ensureRoles(admin, names, spec)
    await ensureDatabase(admin, names)
  })
  await withAdmin(cluster, ensureSchemas, names.database)
  await prepareAsOwner(cluster, names, spec.runnerPassword)
}

export async function ensureRoles(
  admin: Session,
  names: ProjectNames,
  { password, runnerPassword }: Pick<ProjectSpec, 'password' | 'runnerPassword'>,
): Promise<void> {
  const { owner, runner, reader, storage } = names
  const shared = [...API_ROLES, APP_OWNER, ...APP_GRANTEES, READER_GROUP, STORAGE_GROUP, STORAGE_OWNER]
  const existing = await existingAmong(admin, [...shared, ...loginRoles(names)])
  const define = (role: string, attributes: string) =>
    existing.has(role) ? [] : [`CREATE ROLE ${role} WITH ${attributes}`]
  const login = (role: string, attributes: string, secret: string, connectionsMax: number) => [
    ...define(role, `INHERIT ${attributes}`),
    `ALTER ROLE ${role} WITH LOGIN CONNECTION LIMIT ${connectionsMax} PASSWORD ${quoteLiteral(secret)}`,
  ]
  const statements = [
    ...shared.flatMap((role) =>
      define(role, `NOLOGIN NOINHERIT ${[APP_OWNER, 'service_role'].includes(role) ? 'BYPASSRLS' : ''}`),
    ),
    ...login(owner, '', password, OWNER_CONNECTIONS_MAX),
    ...login(runner, '', runnerPassword, RUNNER_CONNECTIONS_MAX),
    ...login(reader, 'BYPASSRLS', runnerPassword, RUNNER_CONNECTIONS_MAX),
    ...login(storage, 'BYPASSRLS', runnerPassword, STORAGE_CONNECTIONS_MAX),
    `ALTER ROLE ${reader} SET default_transaction_read_only = on`,
    `ALTER ROLE ${storage} SET statement_timeout = '${STORAGE_TIMEOUT}'`,
    `ALTER ROLE ${storage} SET default_transaction_isolation = 'read committed'`,
    // Its own statements must never call what the project's owner has made.
    `ALTER ROLE ${storage} SET search_path = 'pg_catalog'`,
    `GRANT ${[SCHEMA_OWNER, STORAGE_OWNER, ...loginRoles(names)].join(', ')} TO ${ADMIN} WITH INHERIT TRUE, SET TRUE`,
    `GRANT ${API_ROLES.join(', ')} TO ${owner}, ${storage} WITH INHERIT FALSE, SET TRUE, ADMIN FALSE`,
    `GRANT ${APP_OWNER} TO ${owner} WITH INHERIT TRUE, SET TRUE, ADMIN FALSE`,
    `GRANT ${owner} TO ${runner} WITH INHERIT TRUE, SET TRUE, ADMIN FALSE`,
    `GRANT ${READER_GROUP} TO ${reader} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
    `GRANT ${STORAGE_GROUP} TO ${storage} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE`,
  ]
  await admin.rows(statements.join(';\n')).catch(passwordFailure)
}

async function existingAmong(admin: Session, roles: readonly string[]): Promise<Set<string>> {
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(roles)})`,
  )
  return new Set(rows.map(({ rolname }) => rolname))
}

async function ensureDatabase(admin: Session, names: ProjectNames): Promise<void> {
  const { database, owner } = names
  const found = await admin.rows(`SELECT FROM pg_database WHERE datname = ${quoteLiteral(database)}`)
  if (found.length === 0) await admin.rows(`CREATE DATABASE ${database} OWNER ${owner}`)
  await admin.rows(
    [
      `REVOKE ALL ON DATABASE ${ADMIN}, ${database} FROM PUBLIC`,
      `GRANT CONNECT ON DATABASE ${database} TO ${loginRoles(names).join(', ')}`,
      `GRANT TEMPORARY, CREATE ON DATABASE ${database} TO ${owner}`,
      // The owner of a schema must be allowed to create one.
      `GRANT CREATE ON DATABASE ${database} TO ${APP_OWNER}`,
      `ALTER DATABASE ${database} SET search_path = "$user", public, extensions`,
    ].join('; '),
  )
}

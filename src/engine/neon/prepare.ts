import type { ProjectSpec } from '../engine.ts'
import { APP_OWNER } from '../hosted-names.ts'
import { loginRoles, type ProjectNames, quoteLiteral, quoteLiterals } from '../names.ts'
import {
  API_ROLES,
  OWNER_CONNECTIONS_MAX,
  READER_GROUP,
  RUNNER_CONNECTIONS_MAX,
  STORAGE_CONNECTIONS_MAX,
  STORAGE_GROUP,
  STORAGE_TIMEOUT,
} from '../roles.ts'
import { type Cluster, type Session, withAdmin } from '../session.ts'
import { SCHEMA_OWNER, STORAGE_OWNER } from '../storage/names.ts'
import { passwordFailure } from './passwords.ts'
import { ensureSchemas, prepareAsOwner } from './schemas.ts'

/** Name of the administrator's role and database, which Neon creates with each project. Only the engine uses them. */
export const ADMIN = 'pilothouse'

/** Roles to which migrations grant rights, for services that the project's owner may run. */
const APP_GRANTEES = ['authenticator', 'dashboard_user', 'supabase_auth_admin', SCHEMA_OWNER]

/** Sets both passwords of a prepared project without touching its schemas, which the owner may have changed. */
export async function prepareRoles(cluster: Cluster, spec: ProjectSpec): Promise<void> {
  await withAdmin(cluster, (admin) => ensureRoles(admin, cluster.names, spec))
}

/**
 * Creates or repairs a project's roles and database. Neon's most powerful role is not a superuser: it has rights on what it
 * created, and those of the roles that it granted to itself.
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
    // The storage server's statements must never call functions of the project's owner.
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

/** Those of the roles that exist. */
export async function existingAmong(admin: Session, roles: readonly string[]): Promise<Set<string>> {
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
      // The future owner of a schema must be allowed to create schemas.
      `GRANT CREATE ON DATABASE ${database} TO ${APP_OWNER}`,
      `ALTER DATABASE ${database} SET search_path = "$user", public, extensions`,
    ].join('; '),
  )
}

import { APP_GRANTEES, APP_OWNER, appMembership, appRightsOnDatabase } from '../app-roles.ts'
import { prepareAsOwner } from '../database.ts'
import type { ProjectSpec } from '../engine.ts'
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
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../storage/schema.ts'
import { availableExtensions, projectSchemas } from '../template.ts'
import { passwordFailure } from './passwords.ts'

/** The role that Neon makes with each project, and the database that it works from; both are the engine's alone. */
export const ADMIN = 'pilothouse'

/** Sets both passwords of a project that has been prepared: what its owner has done to its schemas since is his. */
export async function prepareRoles(cluster: Cluster, spec: ProjectSpec): Promise<void> {
  await withAdmin(cluster, (admin) => ensureRoles(admin, cluster.names, spec))
}

/**
 * Makes a project's roles and its database, each as it must be, whatever was there before. Whom Neon gives the most rights is
 * still no superuser: he may do what he has made, and what those may whom he has made himself a member of.
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
    appMembership(owner),
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
      appRightsOnDatabase(database),
      `ALTER DATABASE ${database} SET search_path = "$user", public, extensions`,
    ].join('; '),
  )
}

async function ensureSchemas(inside: Session): Promise<void> {
  const [found] = await inside.rows<{ made: boolean }>(
    `SELECT to_regclass('supabase_migrations.schema_migrations') IS NOT NULL AS made`,
  )
  if (!found?.made) await inside.rows(projectSchemas(await availableExtensions(inside)))
  await ensureStorageSchema(inside)
}

/** What the owner has changed or dropped since stays as he left it. */
export async function ensureStorageSchema(inside: Session): Promise<void> {
  const [found] = await inside.rows<{ version: string | null }>(STORAGE_VERSION_QUERY)
  if (found?.version === STORAGE_VERSION) return
  await inside.rows(
    [
      'CREATE SCHEMA IF NOT EXISTS storage',
      `ALTER SCHEMA storage OWNER TO ${SCHEMA_OWNER}`,
      // Who is to own a table must be allowed to make one where it is.
      `GRANT CREATE ON SCHEMA storage TO pg_database_owner, ${STORAGE_OWNER}`,
      ...storageSchema({ superuser: false }),
      `REVOKE CREATE ON SCHEMA storage FROM pg_database_owner, ${STORAGE_OWNER}`,
    ].join(';\n'),
  )
}

import { ensureAppRoles } from './app-roles.ts'
import { closedCatalogue, stockViews } from './catalogue.ts'
import { isDatabaseError } from './failure.ts'
import { hasLoginCheck, LOGIN_CHECK } from './login-check.ts'
import { quoteLiteral, quoteLiterals } from './names.ts'
import { API_ROLES, READER_GROUP } from './roles.ts'
import { type Server, type Session, withAdmin } from './session.ts'
import { STORAGE_GROUP, STORAGE_OWNER } from './storage/names.ts'
import { storageSchema } from './storage/schema.ts'

/**
 * What new projects are copied from. A change to it gets a new name here, as does one of `storageSchema`: databases that exist
 * are then brought to it, but for what is their owner's by now (`projectSchemas`).
 */
export const TEMPLATE = 'pilothouse_template_v10'

const EXTENSIONS = ['pgcrypto', 'uuid-ossp']
const API = API_ROLES.join(', ')

/** What the cluster needs before its first project: the shared roles, the template, closed doors everywhere else. */
export async function ensureCluster(cluster: Server, admin: Session): Promise<void> {
  if ((await hasTemplate(admin)) && (await openDatabases(admin)).length === 0) return
  const key = `hashtextextended(${quoteLiteral(TEMPLATE)}, 0)`
  await admin.rows(`SELECT pg_advisory_lock(${key})`)
  try {
    for (const database of await openDatabases(admin)) await close(admin, database)
    if (!(await hasTemplate(admin))) await buildTemplate(cluster, admin)
  } finally {
    await admin.rows(`SELECT pg_advisory_unlock(${key})`)
  }
}

/** Databases that are no project's and that, as in stock Postgres, every role may enter. */
async function openDatabases(admin: Session): Promise<string[]> {
  const rows = await admin.rows<{ name: string }>(
    `SELECT quote_ident(datname) AS name FROM pg_database
      WHERE datname !~ '^p_[a-z]{20}$' AND has_database_privilege('public', oid, 'CONNECT')`,
  )
  return rows.map(({ name }) => name)
}

/** Others use the cluster too: what was listed may be gone, or closed, by now. */
async function close(admin: Session, database: string): Promise<void> {
  await admin.rows(`REVOKE ALL ON DATABASE ${database} FROM PUBLIC`).catch(async (error) => {
    if ((await openDatabases(admin)).includes(database)) throw error
  })
}

/** `datistemplate` is set when the template is complete, as the last step of building it. */
async function hasTemplate(admin: Session): Promise<boolean> {
  const rows = await admin.rows(
    `SELECT 1 FROM pg_database WHERE datname = ${quoteLiteral(TEMPLATE)} AND datistemplate AND NOT datallowconn`,
  )
  return rows.length > 0
}

async function buildTemplate(cluster: Server, admin: Session): Promise<void> {
  await ensureSharedRoles(admin)
  await ensureAppRoles(admin)
  await admin.rows(`DROP DATABASE IF EXISTS ${TEMPLATE} WITH (FORCE)`)
  await admin.rows(`CREATE DATABASE ${TEMPLATE} TEMPLATE template0 ENCODING 'UTF8'`)
  await admin.rows(`REVOKE ALL ON DATABASE ${TEMPLATE} FROM PUBLIC`)
  await withAdmin(
    cluster,
    async (inside) => {
      await inside.rows(projectSchemas(await availableExtensions(inside)))
      await inside.rows(storageSchema('pg_database_owner', true).join(';\n'))
      await buildWall(admin, inside)
    },
    TEMPLATE,
  )
  await admin.rows(`ALTER DATABASE ${TEMPLATE} WITH ALLOW_CONNECTIONS false IS_TEMPLATE true`)
}

/** One row, whose `name` is that of the template with the same wall. */
export const WALL_QUERY = `SELECT obj_description(to_regclass('pg_catalog.pg_database'), 'pg_class') AS name`

/**
 * The closed catalogue and the login check, over those of any earlier version, which go on until they are replaced in one
 * transaction. The mark is on a view of the superuser's in `pg_catalog`, of which `pg_dump` writes no comments.
 */
export async function buildWall(admin: Session, inside: Session): Promise<void> {
  const { hide, move, close } = closedCatalogue(await stockViews(admin))
  const check = (await hasLoginCheck(admin)) ? [LOGIN_CHECK] : []
  const mark = `COMMENT ON VIEW pg_catalog.pg_database IS ${quoteLiteral(TEMPLATE)}`
  for (const statement of hide) await inShortWaits(inside, statement)
  await inside.rows([move, [...close, ...check, mark]].map((statements) => transaction(...statements)).join('; '))
}

const transaction = (...statements: readonly string[]): string =>
  ['BEGIN', 'SET LOCAL allow_system_table_mods = on', ...statements, 'COMMIT'].join(';\n')

const WAIT_MS = 200
const WAITS_MAX = 25
const LOCK_NOT_AVAILABLE = '55P03'

/** For a lock on a table of the whole cluster: while one waits for it, nobody can open a session anywhere. */
async function inShortWaits(inside: Session, statement: string): Promise<void> {
  for (let wait = 1; ; wait++) {
    try {
      await inside.rows(transaction(`SET LOCAL lock_timeout = ${WAIT_MS}`, statement))
      return
    } catch (error) {
      if (wait === WAITS_MAX || !isDatabaseError(error) || error.code !== LOCK_NOT_AVAILABLE) throw error
      await inside.rows(`ROLLBACK; SELECT pg_sleep(${WAIT_MS / 1000})`)
    }
  }
}

async function ensureSharedRoles(admin: Session): Promise<void> {
  const wanted = [...API_ROLES, READER_GROUP, STORAGE_GROUP, STORAGE_OWNER]
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(wanted)})`,
  )
  const existing = new Set(rows.map(({ rolname }) => rolname))
  const define = wanted.map((role) => {
    const options = role === 'service_role' ? 'BYPASSRLS' : 'NOBYPASSRLS'
    const verb = existing.has(role) ? 'ALTER' : 'CREATE'
    return `${verb} ROLE ${role} WITH NOLOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION ${options}`
  })
  await admin.rows(define.join('; '))
}

export async function availableExtensions(inside: Session): Promise<string[]> {
  const rows = await inside.rows<{ name: string }>(
    `SELECT name FROM pg_available_extensions WHERE name IN (${quoteLiterals(EXTENSIONS)})`,
  )
  return rows.map(({ name }) => name)
}

/** `pg_database_owner` stands for the owner of whichever database the template is copied to. */
export function projectSchemas(extensions: readonly string[]): string {
  return [
    `GRANT USAGE ON SCHEMA public TO ${API}, ${READER_GROUP}`,
    'CREATE SCHEMA extensions AUTHORIZATION pg_database_owner',
    `GRANT USAGE ON SCHEMA extensions TO ${API}, ${READER_GROUP}`,
    ...extensions.map((name) => `CREATE EXTENSION "${name}" WITH SCHEMA extensions`),
    'CREATE SCHEMA supabase_migrations AUTHORIZATION pg_database_owner',
    `GRANT USAGE ON SCHEMA supabase_migrations TO ${READER_GROUP}`,
    `CREATE TABLE supabase_migrations.schema_migrations (
       version text PRIMARY KEY, statements text[], name text, created_by text, idempotency_key text UNIQUE, rollback text[])`,
    'ALTER TABLE supabase_migrations.schema_migrations OWNER TO pg_database_owner',
    `GRANT SELECT ON supabase_migrations.schema_migrations TO ${READER_GROUP}`,
  ].join('; ')
}

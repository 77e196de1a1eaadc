import { quoteLiteral, quoteLiterals } from './names.ts'
import type { Session } from './session.ts'
import { SCHEMA_OWNER } from './storage/names.ts'

/**
 * Migrations that were written for the hosted service make this role the owner of what they make, and give it rights. A role of the
 * whole cluster whose members are the owners of all projects: what it owns in a database only those reach who get into that database.
 */
export const APP_OWNER = 'postgres'

/** They also give rights to these, for services that a project's owner may run himself. */
export const APP_GRANTEES = ['authenticator', 'dashboard_user', 'supabase_auth_admin', SCHEMA_OWNER]

/** A superuser of that name, or a login, is somebody else's: no project may act for it. */
const IS_OURS = `EXISTS (SELECT FROM pg_roles AS app WHERE rolname = ${quoteLiteral(APP_OWNER)}
  AND NOT (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolreplication)
  AND NOT EXISTS (SELECT FROM pg_auth_members WHERE member = app.oid))`

/** Nothing where the role is not ours. */
export const whereOurs = (...statements: readonly string[]): string =>
  `DO $app$ BEGIN IF ${IS_OURS} THEN ${statements.join('; ')}; END IF; END $app$`

/** Those that the cluster has already stay as they are. */
export async function ensureAppRoles(admin: Session): Promise<void> {
  const names = [APP_OWNER, ...APP_GRANTEES]
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(names)})`,
  )
  const missing = names.filter((name) => !rows.some(({ rolname }) => rolname === name))
  const define = missing.map(
    (name) => `CREATE ROLE ${name} WITH NOLOGIN NOINHERIT ${name === APP_OWNER ? 'BYPASSRLS' : ''}`,
  )
  if (define.length > 0) await admin.rows(define.join('; '))
}

export const appMembership = (owner: string): string =>
  whereOurs(`GRANT ${APP_OWNER} TO ${owner} WITH INHERIT TRUE, SET TRUE, ADMIN FALSE`)

/** Who is to own a schema must be allowed to make one. */
export const appRightsOnDatabase = (database: string): string =>
  whereOurs(`GRANT CREATE ON DATABASE ${database} TO ${APP_OWNER}`)

/** As the API's roles have them, as its functions are to reach what the project's owner has. */
export const appRightsInside = (): string =>
  whereOurs(
    `GRANT USAGE ON SCHEMA storage TO ${APP_OWNER}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON storage.buckets, storage.objects TO ${APP_OWNER}`,
    ...['public', 'extensions', 'auth'].map(
      (schema) =>
        `IF to_regnamespace('${schema}') IS NOT NULL THEN GRANT USAGE, CREATE ON SCHEMA ${schema} TO ${APP_OWNER}; END IF`,
    ),
  )

/** Migrations of apps add tables to it, for a server of theirs that follows changes. */
export const REALTIME_PUBLICATION = `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime') THEN CREATE PUBLICATION supabase_realtime; END IF;
END $$`

import { quoteLiterals } from '../../../../engine/names.ts'

/** Client sessions. `backend_type` is null for sessions that the role may not inspect. */
const SESSIONS = `SELECT count(*) FROM pg_stat_activity AS session JOIN pg_roles AS login ON login.oid = usesysid
  WHERE coalesce(backend_type, 'client backend') = 'client backend'`

/** Roles whose sessions use the reserved connections, as do the API's sessions as the owner. */
const SERVICES = quoteLiterals([
  'authenticator',
  'supabase_storage_admin',
  'supabase_auth_admin',
  'supabase_read_only_user',
])
const RESERVED = `(SELECT sum(setting::int) FROM pg_settings
  WHERE name IN ('superuser_reserved_connections', 'reserved_connections'))`

/** Checks that run inside the database. They can only run if at least one connection is free. */
export const healthChecks = {
  db_connection_limit_reached: `
    SELECT NULL AS schema, NULL AS name, 'health' AS type, ARRAY[whose] AS key,
        format('%s has %s of its %s sessions open.', whose, open, most) AS detail, NULL::json AS more
      FROM (SELECT 'The role ' || rolname AS whose, rolconnlimit AS most, (${SESSIONS} AND login.oid = role.oid) AS open
              FROM pg_roles AS role WHERE rolconnlimit > 0
            UNION ALL
            SELECT 'The database', datconnlimit, (${SESSIONS} AND datname = current_database())
              FROM pg_database WHERE datname = current_database() AND datconnlimit > 0
            UNION ALL
            SELECT 'The server', most, least(most, (${SESSIONS} AND NOT rolsuper AND rolname NOT IN (${SERVICES})))
              FROM (SELECT current_setting('max_connections')::int - ${RESERVED} AS most) AS server) AS limits
     WHERE open >= most`,
} satisfies Record<string, string>

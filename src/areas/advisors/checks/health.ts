import type { Checks } from './statement.ts'

/** Of others' sessions a role may not be told the kind. */
const SESSIONS = `SELECT count(*) FROM pg_stat_activity
  WHERE datname = current_database() AND usesysid IS NOT NULL AND backend_type IS DISTINCT FROM 'parallel worker'`

/** What is asked from inside, so that one connection at least was left. */
export const healthChecks = {
  db_connection_limit_reached: `
    SELECT NULL AS schema, NULL AS name, 'health' AS type, ARRAY[whose] AS key,
        format('%s has %s of its %s sessions open.', whose, open, most) AS detail, NULL::json AS more
      FROM (SELECT 'The role ' || rolname AS whose, rolconnlimit AS most, (${SESSIONS} AND usesysid = role.oid) AS open
              FROM pg_roles AS role WHERE rolconnlimit > 0 AND starts_with(rolname, current_database())
            UNION ALL
            SELECT 'The database', datconnlimit, (${SESSIONS})
              FROM pg_database WHERE datname = current_database() AND datconnlimit > 0) AS limits
     WHERE open >= most`,
} satisfies Checks

import { EngineUnavailable } from './engine.ts'
import { quoteLiteral, TEMPORARY_LOGIN } from './names.ts'
import type { Session } from './session.ts'

const SESSIONS_MAX = 20
const LOOKS_MAX = 2 * SESSIONS_MAX

const TEMPORARY = `'^p_[a-z]{20}${TEMPORARY_LOGIN}'`

/** Also of its backups, whose databases' names go on where the project's own ends. */
const SERVICES = ['_sql', '_read', '_storage'].map((ending) => `own || '${ending}'`).join(', ')

/**
 * Refuses a session of a temporary login from outside its networks, or beyond what those of a project may hold together,
 * and one without TLS or from elsewhere where the project demands otherwise; and other projects' roles, which the owner could
 * let in past all that. For superusers and the project's services it does nothing. What it goes by stands in comments
 * on roles: no role of a project can change those, and they go with the role. The trigger belongs to plpgsql, so that a dump
 * does not carry what its reader could not make.
 */
export const LOGIN_CHECK = `
  CREATE OR REPLACE FUNCTION pg_catalog.pilothouse_login_check() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $check$
    DECLARE
      own text := left(current_database(), 22);
      is_temporary boolean := starts_with(session_user, own) AND session_user ~ ${TEMPORARY};
      login jsonb;
      project jsonb;
      sessions int;
      mine int;
    BEGIN
      IF NOT is_temporary AND session_user <> current_database() THEN
        IF session_user IN (${SERVICES}) OR (SELECT rolsuper FROM pg_authid WHERE rolname = session_user) THEN RETURN; END IF;
        RAISE EXCEPTION 'role % is none of this project', session_user USING ERRCODE = '28000';
      END IF;
      EXECUTE format('SELECT (SELECT description::jsonb FROM %1$s WHERE classoid = 1260 AND objoid = to_regrole($1)),
          (SELECT description::jsonb FROM %1$s WHERE classoid = 1260 AND objoid = to_regrole($2))',
        coalesce(to_regclass('pg_catalog.pg_shdescription_of_cluster'), 'pg_catalog.pg_shdescription'::regclass))
        INTO login, project USING session_user::text, current_database()::text;
      IF project -> 'ssl' = 'true' AND NOT EXISTS (SELECT FROM pg_stat_get_activity(pg_backend_pid()) WHERE ssl) THEN
        RAISE EXCEPTION 'SSL connection is required' USING ERRCODE = '28000';
      END IF;
      IF project ? 'networks' AND NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(project -> 'networks') AS network WHERE inet_client_addr() <<= network::inet)
      THEN
        RAISE EXCEPTION 'this project is not reached from %', coalesce(host(inet_client_addr()), 'a local socket')
          USING ERRCODE = '28000';
      END IF;
      IF NOT is_temporary THEN RETURN; END IF;
      IF login IS NULL THEN
        RAISE EXCEPTION 'nothing is known of this login' USING ERRCODE = '28000';
      END IF;
      IF login ? 'networks' AND NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(login -> 'networks') AS network WHERE inet_client_addr() <<= network::inet)
      THEN
        RAISE EXCEPTION 'this login is not allowed from %', coalesce(host(inet_client_addr()), 'a local socket')
          USING ERRCODE = '28000';
      END IF;
      FOR look IN 1..${LOOKS_MAX} LOOP
        PERFORM pg_stat_clear_snapshot();
        WITH held AS (
          SELECT pid, row_number() OVER (ORDER BY backend_start, pid) AS place
            FROM pg_stat_get_activity(NULL) AS activity JOIN pg_authid ON pg_authid.oid = usesysid
           WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND rolname ~ ${TEMPORARY})
        SELECT count(*), max(place) FILTER (WHERE pid = pg_backend_pid()) INTO sessions, mine FROM held;
        IF sessions <= ${SESSIONS_MAX} THEN RETURN; END IF;
        -- Of many that come at once those behind the last place leave, then one after the other, until the rest has room.
        EXIT WHEN mine > ${SESSIONS_MAX} OR look > ${LOOKS_MAX} - mine;
        PERFORM pg_sleep(0.05);
      END LOOP;
      RAISE EXCEPTION 'the temporary logins of this project hold ${SESSIONS_MAX} sessions already'
        USING ERRCODE = '53300';
    END $check$;
  DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'pilothouse_login_check') THEN RETURN; END IF;
    CREATE EVENT TRIGGER pilothouse_login_check ON login EXECUTE FUNCTION pg_catalog.pilothouse_login_check();
    ALTER EVENT TRIGGER pilothouse_login_check ENABLE ALWAYS;
    ALTER EXTENSION plpgsql ADD EVENT TRIGGER pilothouse_login_check;
  END $$`

/** Event triggers fire at logins from Postgres 17 on. */
export async function hasLoginCheck(session: Session): Promise<boolean> {
  const [server] = await session.rows<{ version: number }>(
    `SELECT current_setting('server_version_num')::int AS version`,
  )
  return server !== undefined && server.version >= 170_000
}

/** For a superuser's session in a project's database, whose owner may have set defaults for all who come. */
export async function ensureLoginCheck(inside: Session): Promise<void> {
  if (!(await hasLoginCheck(inside))) throw new EngineUnavailable('Logins can be checked from Postgres 17 on')
  await inside.rows(`SET ROLE NONE; SET default_transaction_read_only = off; ${LOGIN_CHECK}`)
}

/** What the owner and temporary logins of a project must keep to; its own services are exempt. In a change, what is absent stays. */
export interface LoginRules {
  /** Whether they must come with TLS. */
  ssl?: boolean
  /** In CIDR notation; null for any. */
  networks?: readonly string[] | null
}

/** Where there is a login check, in the session of a superuser who sees the comments of the cluster. */
export async function changeLoginRules(admin: Session, owner: string, change: LoginRules): Promise<void> {
  const role = quoteLiteral(owner)
  const [found] = await admin.rows<{ rules: LoginRules | null }>(
    `SELECT shobj_description(to_regrole(${role}), 'pg_authid')::jsonb AS rules`,
  )
  const { ssl, networks } = { ...found?.rules, ...change }
  const rules = JSON.stringify({ ...(ssl && { ssl }), ...(networks && { networks }) })
  await admin.rows(`COMMENT ON ROLE ${owner} IS ${rules === '{}' ? 'NULL' : quoteLiteral(rules)}`)
}

const isOfProject = (owner: string) => `usename = ${quoteLiteral(owner)} OR usename ~ '^${owner}${TEMPORARY_LOGIN}'`

/** After the rules were changed, so that who comes meanwhile is either seen here or refused. */
export async function endSessionsFromElsewhere(
  admin: Session,
  owner: string,
  networks: readonly string[],
): Promise<void> {
  await admin.rows(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE (${isOfProject(owner)}) AND NOT EXISTS (SELECT FROM unnest($1::text[]) AS network WHERE client_addr <<= network::inet)`,
    [[...networks]],
  )
}

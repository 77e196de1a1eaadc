import { REALTIME_PUBLICATION } from '../../src/engine/hosted-names.ts'
import { API_ROLES } from '../../src/engine/roles.ts'
import { storageSchema } from '../../src/engine/storage/schema.ts'
import { OWNER } from './roles.ts'

const API = API_ROLES.join(', ')
const DATA_API_ROLES = `${OWNER}, ${API}`

/** Statements that create the contents of the database `postgres` in a new instance. */
export const schemas = (): string[] => [
  `ALTER DATABASE postgres OWNER TO ${OWNER}`,
  'ALTER DATABASE postgres SET search_path = "$user", public, extensions',
  // The default of the hosted service; with the locale C, initdb would choose a configuration without stemming.
  `ALTER DATABASE postgres SET default_text_search_config = 'pg_catalog.english'`,
  'GRANT ALL ON DATABASE postgres TO dashboard_user',
  `GRANT USAGE ON SCHEMA public TO ${DATA_API_ROLES}`,
  // Not for the superuser, which creates the objects of extensions: their scripts reserve some of them for superusers.
  ...['TABLES', 'SEQUENCES', 'FUNCTIONS'].map(
    (kind) => `ALTER DEFAULT PRIVILEGES FOR ROLE ${OWNER} IN SCHEMA public GRANT ALL ON ${kind} TO ${DATA_API_ROLES}`,
  ),
  `CREATE SCHEMA extensions AUTHORIZATION ${OWNER}`,
  `GRANT USAGE ON SCHEMA extensions TO ${API}`,
  `GRANT ALL ON SCHEMA extensions TO dashboard_user`,
  // Created as the owner, so that the owner can drop them.
  asOwner('CREATE EXTENSION pgcrypto WITH SCHEMA extensions'),
  asOwner('CREATE EXTENSION "uuid-ossp" WITH SCHEMA extensions'),
  'CREATE EXTENSION pg_stat_statements WITH SCHEMA extensions',
  `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA extensions TO ${OWNER} WITH GRANT OPTION`,
  ...storageSchema('services'),
  'GRANT USAGE ON SCHEMA storage TO pg_database_owner WITH GRANT OPTION',
  `CREATE SCHEMA supabase_migrations AUTHORIZATION ${OWNER}`,
  `CREATE TABLE supabase_migrations.schema_migrations (
     version text PRIMARY KEY, statements text[], name text, created_by text, idempotency_key text UNIQUE, rollback text[])`,
  `ALTER TABLE supabase_migrations.schema_migrations OWNER TO ${OWNER}`,
  REALTIME_PUBLICATION,
  `ALTER PUBLICATION supabase_realtime OWNER TO ${OWNER}`,
  ...schemaReload(),
  ...extensionAccess(),
]

const asOwner = (statement: string): string => `DO $$ BEGIN SET LOCAL ROLE ${OWNER}; ${statement}; END $$`

/** Notifies PostgREST to reload the schema after changes, as the hosted service does. */
function schemaReload(): string[] {
  const watch = (name: string, event: string, source: string, reloads: string) => [
    `CREATE FUNCTION extensions.${name}() RETURNS event_trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN
       IF EXISTS (SELECT FROM ${source}() AS o WHERE o.schema_name IS DISTINCT FROM 'pg_temp' AND (${reloads})) THEN
         NOTIFY pgrst, 'reload schema';
       END IF;
     END $$`,
    `CREATE EVENT TRIGGER ${name} ON ${event} EXECUTE FUNCTION extensions.${name}()`,
  ]
  return [
    ...watch(
      'pgrst_ddl_watch',
      'ddl_command_end',
      'pg_event_trigger_ddl_commands',
      `o.command_tag ~ '${RELOADING_COMMANDS}'`,
    ),
    ...watch(
      'pgrst_drop_watch',
      'sql_drop',
      'pg_event_trigger_dropped_objects',
      `NOT o.is_temporary AND o.object_type IN
         ('schema', 'table', 'foreign table', 'view', 'materialized view', 'function', 'trigger', 'type', 'rule')`,
    ),
  ]
}

/**
 * Grants the owner access to the objects of an extension whose script runs as the superuser, which then owns them. The owner can
 * only read the tables: pg_cron runs each job as the user that its row names.
 */
const extensionAccess = (): string[] => [
  `CREATE FUNCTION extensions.grant_extension_access() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
     SET search_path = pg_catalog, pg_temp AS $$
   DECLARE statement text;
   BEGIN
     FOR statement IN
       SELECT format('GRANT %s TO ${OWNER} WITH GRANT OPTION', CASE member.classid
         WHEN 'pg_namespace'::regclass THEN format('USAGE ON SCHEMA %s', member.objid::regnamespace)
         WHEN 'pg_foreign_data_wrapper'::regclass THEN
           (SELECT format('USAGE ON FOREIGN DATA WRAPPER %I', fdwname) FROM pg_foreign_data_wrapper WHERE oid = member.objid)
         ELSE format('SELECT ON %s', member.objid::regclass) END)
       FROM pg_event_trigger_ddl_commands() AS command
       JOIN pg_depend AS member ON member.refclassid = command.classid AND member.refobjid = command.objid AND member.deptype = 'e'
       LEFT JOIN pg_class AS relation ON member.classid = 'pg_class'::regclass AND relation.oid = member.objid
       WHERE command.classid = 'pg_extension'::regclass AND (relation.relkind IN ('r', 'v', 'm', 'p')
         OR member.classid IN ('pg_namespace'::regclass, 'pg_foreign_data_wrapper'::regclass))
     LOOP EXECUTE statement; END LOOP;
   END $$`,
  `CREATE EVENT TRIGGER grant_extension_access ON ddl_command_end WHEN TAG IN ('CREATE EXTENSION', 'ALTER EXTENSION')
     EXECUTE FUNCTION extensions.grant_extension_access()`,
]

const RELOADING_COMMANDS =
  '^(CREATE|ALTER) (SCHEMA|(FOREIGN )?TABLE|TABLE AS|(MATERIALIZED )?VIEW|FUNCTION|TRIGGER|TYPE|RULE)$|^(SELECT INTO|COMMENT|GRANT|REVOKE)$'

import { APP_OWNER } from '../hosted-names.ts'
import { eventTrigger } from './guard.ts'
import { INTERNAL_SCHEMA, SCHEMA_OWNER } from './names.ts'

/** Tokens of the last transactions that changed the project's schema. */
export const SCHEMA_CHANGES = `${INTERNAL_SCHEMA}.schema_changes`

/** Older rows are removed; a removal changes the version too, which costs one more read of the schema. */
const KEPT = 8

/**
 * SQL for the table and for the event triggers that fill it, by which the Data API notices a change with the next request. It belongs to
 * the superuser: a trigger of the tenant would run with the superuser's rights. Rows are never updated, and removed only if no other
 * transaction has locked them, so transactions that change the schema do not wait for each other.
 */
export function schemaChanges({ watch, server }: { watch: boolean; server: string }): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${SCHEMA_CHANGES} (
       id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token uuid NOT NULL DEFAULT gen_random_uuid())`,
    `ALTER TABLE ${SCHEMA_CHANGES} OWNER TO ${SCHEMA_OWNER}`,
    `GRANT SELECT ON ${SCHEMA_CHANGES} TO ${server}`,
    ...(watch
      ? [
          `GRANT USAGE ON SCHEMA ${INTERNAL_SCHEMA} TO authenticator`,
          `GRANT SELECT ON ${SCHEMA_CHANGES} TO authenticator`,
          // Postgres lets only a superuser, or a role with this right, store a setting that it does not know.
          ...SETTINGS.map((name) => `GRANT SET ON PARAMETER ${name} TO ${APP_OWNER}`),
          ...record('record_schema_changes', 'ddl_command_end', COMMANDS),
          ...record('record_schema_drops', 'sql_drop', DROPS),
        ]
      : []),
  ]
}

/** Settings of the Data API that the owner gives to the database. */
const SETTINGS = ['db_pre_request', 'db_aggregates_enabled', 'db_plan_enabled', 'openapi_mode'].map(
  (name) => `pgrst.${name}`,
)

/** A refresh and a comment change nothing that the Data API keeps, and a view may be refreshed every minute. */
const COMMANDS = `pg_event_trigger_ddl_commands() AS o WHERE o.schema_name IS DISTINCT FROM 'pg_temp'
  AND o.command_tag NOT IN ('REFRESH MATERIALIZED VIEW', 'COMMENT')
  AND o.object_type NOT IN ('index', 'policy', 'publication', 'subscription')`
const DROPS = `pg_event_trigger_dropped_objects() AS o WHERE NOT o.is_temporary AND o.original
  AND o.object_type NOT IN ('index', 'policy', 'publication', 'subscription')`

/** A transaction never removes its own token: the Data API would not notice its later changes. */
const record = (name: string, event: string, changes: string): string[] =>
  eventTrigger(
    name,
    event,
    `BEGIN
       IF NOT EXISTS (SELECT FROM ${changes}) THEN RETURN; END IF;
       INSERT INTO ${SCHEMA_CHANGES} (token) SELECT gen_random_uuid()
         WHERE NOT EXISTS (SELECT FROM ${SCHEMA_CHANGES} WHERE xmin = pg_current_xact_id()::xid);
       DELETE FROM ${SCHEMA_CHANGES} WHERE xmin <> pg_current_xact_id()::xid AND id IN (
         SELECT id FROM ${SCHEMA_CHANGES} ORDER BY id DESC OFFSET ${KEPT} FOR UPDATE SKIP LOCKED);
     END`,
    'SECURITY DEFINER',
  )

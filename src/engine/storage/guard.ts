import { quoteLiterals } from '../names.ts'
import { AUTH_OWNER, INTERNAL_SCHEMA, SCHEMA_OWNER, SERVER_TABLES, STORAGE_OWNER } from './names.ts'

/** Triggers that the owner of the database cannot drop or replace. The owner may add others. */
const ROW_GUARD = 'guard_rows'
export const GUARDED_TRIGGERS = [
  ...['remember_deleted', 'remember_replaced', 'remember_truncated', 'update_objects_updated_at'],
  ROW_GUARD,
]

/** Commands that are allowed because they do not change what the services rely on. */
const ALLOWED = [
  ...['CREATE POLICY', 'ALTER POLICY', 'CREATE TRIGGER', 'REINDEX', 'COMMENT', 'SECURITY LABEL'],
  ...['CREATE PUBLICATION', 'ALTER PUBLICATION'],
]

/** Schemas of the services, which the platform guards. */
export const GUARDED_SCHEMAS = ['storage', 'auth', INTERNAL_SCHEMA]
const SCHEMAS = quoteLiterals(GUARDED_SCHEMAS)
const OIDS = `(SELECT oid FROM pg_namespace WHERE nspname IN (${SCHEMAS}))`
const SERVICES = `('${STORAGE_OWNER}'::regrole, '${AUTH_OWNER}'::regrole)`

/**
 * SQL for event triggers that protect the schemas of the services. The owner of the database has the rights of the
 * services' roles: only the owner of a table may add policies and triggers to it. The event triggers refuse everything else
 * that these rights allow to all roles but superusers. The services are refused too, because the owner's triggers run in
 * their sessions. REASSIGN OWNED fires no event trigger, but fails: the new owner of a function needs CREATE on its schema,
 * which only superusers have.
 */
export function guard(): string[] {
  return [
    eventTrigger('guard_commands', 'ddl_command_end', refuseCommands()),
    eventTrigger('guard_drops', 'sql_drop', refuseDrops()),
    guardRows(),
  ].flat()
}

/**
 * Refuses writes to the storage server's own tables to all other roles, whose mistakes could delete the bytes of an object. It does not stop
 * an owner who means to: a trigger of theirs in a session of the storage server can take that role. So the storage server must not
 * trust these tables with anything beyond the objects of their own project.
 */
function guardRows(): string[] {
  return [
    `CREATE OR REPLACE FUNCTION storage.${ROW_GUARD}() RETURNS trigger LANGUAGE plpgsql
       SET search_path = pg_catalog, pg_temp AS $$ BEGIN
         IF current_user = '${STORAGE_OWNER}' THEN RETURN NULL; END IF;
         ${UNLESS_SUPERUSER.replace('RETURN', 'RETURN NULL')}
         RAISE insufficient_privilege USING MESSAGE = format('permission denied for table %s', TG_TABLE_NAME);
       END $$`,
    `ALTER FUNCTION storage.${ROW_GUARD}() OWNER TO ${SCHEMA_OWNER}`,
    ...SERVER_TABLES.flatMap((table) => [
      `CREATE OR REPLACE TRIGGER ${ROW_GUARD} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ${table}
         FOR EACH STATEMENT EXECUTE FUNCTION storage.${ROW_GUARD}()`,
      `ALTER TABLE ${table} ENABLE ALWAYS TRIGGER ${ROW_GUARD}`,
    ]),
  ]
}

/** SQL for an event trigger with a function of the same name. `security` is the right that the function runs with. */
export function eventTrigger(name: string, event: string, body: string, security = 'SECURITY INVOKER'): string[] {
  return [
    `CREATE OR REPLACE FUNCTION storage.${name}() RETURNS event_trigger LANGUAGE plpgsql ${security}
       SET search_path = pg_catalog, pg_temp AS $$ ${body} $$`,
    `ALTER FUNCTION storage.${name}() OWNER TO ${SCHEMA_OWNER}`,
    `DO $$ BEGIN
       IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = '${name}') THEN
         CREATE EVENT TRIGGER ${name} ON ${event} EXECUTE FUNCTION storage.${name}();
       END IF;
     END $$`,
    // ALWAYS, because session_replication_role can turn ordinary triggers off.
    `ALTER EVENT TRIGGER ${name} ENABLE ALWAYS`,
  ]
}

const UNLESS_SUPERUSER = 'IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN RETURN; END IF;'

/** Raises Postgres's own message, which clients know. */
const raiseNotOwner = (
  type: string,
  names: string,
) => `RAISE insufficient_privilege USING MESSAGE = format('must be owner of %s %s',
  CASE WHEN ${type} IN ('function', 'index', 'type', 'schema') THEN ${type} ELSE 'table' END,
  coalesce(${names}[2], ${names}[1]))`

function refuseCommands(): string {
  const message = (text: string) => `RAISE insufficient_privilege USING MESSAGE = '${text}'`
  return `
    DECLARE
      command record;
      names text[];
    BEGIN
      ${UNLESS_SUPERUSER}
      FOR command IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
        names := (pg_identify_object_as_address(command.classid, command.objid, command.objsubid)).object_names;
        IF command.schema_name IN (${SCHEMAS}) OR (cardinality(names) > 1 AND names[1] IN (${SCHEMAS})) THEN
          IF command.command_tag NOT IN (${quoteLiterals(ALLOWED)}) OR (command.command_tag = 'CREATE TRIGGER'
              AND names[3] IN (${quoteLiterals(GUARDED_TRIGGERS)})) THEN
            ${raiseNotOwner('command.object_type', 'names')};
          END IF;
        ELSIF command.command_tag LIKE 'ALTER %' AND ${isServiceOwned('command')} THEN
          ${message('cannot move what belongs to a service to another schema')};
        ELSIF command.object_type IN ('table', 'foreign table') AND ${INHERITS} THEN
          ${message('tables of the services cannot have parents or children elsewhere')};
        ELSIF command.object_type = 'cast' AND ${CASTS} THEN
          ${message('cannot cast types of the services')};
        ELSIF command.object_type = 'extension' AND ${EXTENDS} THEN
          ${message('an extension cannot have objects in a schema of a service')};
        ELSIF command.command_tag = 'REVOKE' AND ${LACKS_RIGHTS} THEN
          ${message('cannot revoke the rights of a service in its own schemas')};
        END IF;
      END LOOP;
    END`
}

/** Condition: a service owns the relation, function or type, and it is not temporary. */
function isServiceOwned(command: string): string {
  const owner = (catalogue: string, column: string) =>
    `(SELECT ${column} FROM ${catalogue} WHERE oid = ${command}.objid AND ${command}.classid = '${catalogue}'::regclass)`
  const owners = [owner('pg_class', 'relowner'), owner('pg_proc', 'proowner'), owner('pg_type', 'typowner')]
  return `${command}.schema_name <> 'pg_temp' AND coalesce(${owners.join(', ')}) IN ${SERVICES}`
}

/**
 * Condition: the table is a parent, child or partition of a protected one. Changes of a parent also change its
 * partitions.
 */
const INHERITS = `EXISTS (SELECT FROM pg_inherits JOIN pg_class ON oid IN (inhparent, inhrelid)
  WHERE command.objid IN (inhparent, inhrelid) AND relnamespace IN ${OIDS})`

const CASTS = `EXISTS (SELECT FROM pg_cast AS c JOIN pg_type AS t ON t.oid IN (castsource, casttarget)
  WHERE c.oid = command.objid AND typnamespace IN ${OIDS})`

/**
 * Condition: the extension has objects in a protected schema. The script of a trusted extension runs as a superuser, in the
 * schema that the caller chooses.
 */
const EXTENDS = `(EXISTS (SELECT FROM pg_extension WHERE extnamespace IN ${OIDS})
  OR EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND refobjid = command.objid AND deptype = 'e'
    AND objid IN (SELECT oid FROM pg_class WHERE relnamespace IN ${OIDS} UNION ALL
      SELECT oid FROM pg_proc WHERE pronamespace IN ${OIDS} UNION ALL SELECT oid FROM pg_type WHERE typnamespace IN ${OIDS})))`

const LACKS_RIGHTS = `(EXISTS (SELECT FROM pg_class WHERE relnamespace IN ${OIDS} AND relkind = 'r' AND NOT (
    has_table_privilege(relowner, oid, 'SELECT') AND has_table_privilege(relowner, oid, 'INSERT')
    AND has_table_privilege(relowner, oid, 'UPDATE') AND has_table_privilege(relowner, oid, 'DELETE')))
  OR EXISTS (SELECT FROM pg_proc WHERE pronamespace IN ${OIDS} AND NOT has_function_privilege(proowner, oid, 'EXECUTE')))`

function refuseDrops(): string {
  return `
    DECLARE
      dropped record;
    BEGIN
      ${UNLESS_SUPERUSER}
      FOR dropped IN SELECT * FROM pg_event_trigger_dropped_objects() LOOP
        IF (dropped.schema_name IN (${SCHEMAS})
            OR (cardinality(dropped.address_names) > 1 AND dropped.address_names[1] IN (${SCHEMAS})))
          AND dropped.object_type NOT IN ('policy', 'publication relation')
          AND (dropped.object_type <> 'trigger' OR dropped.address_names[3] IN (${quoteLiterals(GUARDED_TRIGGERS)})) THEN
          ${raiseNotOwner('dropped.object_type', 'dropped.address_names')};
        END IF;
      END LOOP;
    END`
}

import { quoteLiterals } from '../names.ts'
import { EARLIER_TABLES, INTERNAL_SCHEMA, SCHEMA_OWNER, STORAGE_OWNER } from './names.ts'

/** SQL that moves tables of earlier versions to the internal schema. */
export const moveEarlierTables = (): string[] =>
  EARLIER_TABLES.map((table) => `ALTER TABLE IF EXISTS ${table} SET SCHEMA ${INTERNAL_SCHEMA}`)

const GROUPS = ['pilothouse_reader', 'pilothouse_storage']
const SETTINGS = ['session_replication_role', 'statement_timeout']

/**
 * SQL that removes roles and settings of earlier versions: a dump of the roles contained them, but no owner of another project may create
 * or change them. Roles that other databases of the owner's refer to remain. So do roles of the same names that the owner has created.
 */
export const removeEarlierRoles = (): string[] => [
  `DO $$ DECLARE earlier name; BEGIN
     FOR earlier IN SELECT rolname FROM pg_roles AS r WHERE rolname IN (${quoteLiterals(GROUPS)})
       AND NOT EXISTS (SELECT FROM pg_auth_members WHERE roleid = r.oid AND admin_option)
     LOOP
       EXECUTE format('DROP OWNED BY %I', earlier);
       BEGIN
         EXECUTE format('DROP ROLE %I', earlier);
       EXCEPTION WHEN dependent_objects_still_exist THEN NULL;
       END;
     END LOOP;
   END $$`,
  ...[SCHEMA_OWNER, STORAGE_OWNER].flatMap((role) => SETTINGS.map((name) => `ALTER ROLE ${role} RESET ${name}`)),
]

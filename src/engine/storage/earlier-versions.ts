import { quoteLiterals } from '../names.ts'
import { READER_GROUP, STORAGE_GROUP } from '../roles.ts'
import { EARLIER_TABLES, INTERNAL_SCHEMA, SCHEMA_OWNER, STORAGE_OWNER } from './names.ts'

/**
 * SQL that moves tables of earlier versions to the internal schema. Code of an earlier version that still runs may have created a table again:
 * its rows are then copied. The reverse order copies uploads before their parts.
 */
export const moveEarlierTables = (): string[] =>
  EARLIER_TABLES.toReversed().map((earlier) => {
    const table = earlier.replace('storage', INTERNAL_SCHEMA)
    return `DO $$ BEGIN
      IF to_regclass('${earlier}') IS NULL THEN RETURN; END IF;
      IF to_regclass('${table}') IS NULL THEN
        ALTER TABLE ${earlier} SET SCHEMA ${INTERNAL_SCHEMA};
      ELSE
        INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM ${earlier} ON CONFLICT DO NOTHING;
        DROP TABLE ${earlier} CASCADE;
      END IF;
    END $$`
  })

const GROUPS = [READER_GROUP, STORAGE_GROUP]
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

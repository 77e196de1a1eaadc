import { APP_OWNER } from '../hosted-names.ts'
import { API_ROLES } from '../roles.ts'
import { SCHEMA_OWNER } from '../storage/names.ts'

const GRANTEES = [APP_OWNER, ...API_ROLES]

/** The databases besides `postgres` and `template1` that an owner may have copied from `postgres`. */
export const OTHER_DATABASES = `SELECT datname AS name FROM pg_database
  WHERE datallowconn AND datconnlimit <> -2 AND datname NOT IN ('postgres', 'template1')`

const EXTENSION_OBJECTS = `
  SELECT format('TABLE %s', oid::regclass) AS object, relowner AS owner, relacl AS acl, 'pg_class'::regclass AS classid, oid
    FROM pg_class
  UNION ALL SELECT format('ROUTINE %s', oid::regprocedure), proowner, proacl, 'pg_proc'::regclass, oid FROM pg_proc`

/**
 * SQL that revokes the default privileges which earlier versions gave on objects that the superuser creates in `public`. It also revokes
 * the rights that objects of extensions got by them. One is EXECUTE on `dblink_connect_u`, which lets its caller connect as the server's
 * own account; another is the right to add triggers to tables that the superuser fills. SELECT and the rights that the owner may pass on
 * remain, because the platform itself grants them.
 */
export const REVOKE_EXTENSION_RIGHTS = `DO $$
  DECLARE statement text;
  BEGIN
    FOR statement IN
      SELECT format('ALTER DEFAULT PRIVILEGES FOR ROLE ${SCHEMA_OWNER} IN SCHEMA %s REVOKE ALL ON %s FROM ${GRANTEES.join(', ')}',
          defaclnamespace::regnamespace,
          CASE defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' ELSE 'FUNCTIONS' END)
        FROM pg_default_acl
       WHERE defaclrole = '${SCHEMA_OWNER}'::regrole AND defaclnamespace <> 0 AND defaclobjtype IN ('r', 'S', 'f')
      UNION ALL
      SELECT format('REVOKE %s ON %s FROM %s CASCADE', privilege_type, object, grantee::regrole)
        FROM (${EXTENSION_OBJECTS}) AS member JOIN pg_depend ON pg_depend.classid = member.classid AND objid = member.oid
          AND refclassid = 'pg_extension'::regclass AND deptype = 'e', aclexplode(acl)
       WHERE owner = '${SCHEMA_OWNER}'::regrole AND grantor = owner
         AND grantee::regrole::text = ANY ('{${GRANTEES}}') AND NOT is_grantable AND privilege_type <> 'SELECT'
    LOOP EXECUTE statement; END LOOP;
  END $$`

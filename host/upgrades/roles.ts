import type { AdminSession } from '../instances/types.ts'
import { SUPERUSER } from '../template/roles.ts'

/** Statements that recreate roles. The superuser exists already, and the predefined roles are those of the new version. */
const ROLES = `SELECT format('%s ROLE %I WITH %s CONNECTION LIMIT %s PASSWORD %L%s',
    CASE WHEN rolname = $1 THEN 'ALTER' ELSE 'CREATE' END, rolname,
    concat_ws(' ', CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END,
      CASE WHEN rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END, CASE WHEN rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END,
      CASE WHEN rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END, CASE WHEN rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END,
      CASE WHEN rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END,
      CASE WHEN rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END),
    rolconnlimit, rolpassword, ' VALID UNTIL ' || quote_literal(rolvaliduntil)) AS sql
  FROM pg_authid WHERE rolname !~ '^pg_'
  UNION ALL SELECT format('COMMENT ON ROLE %I IS %L', rolname, description)
  FROM pg_authid JOIN pg_shdescription ON objoid = pg_authid.oid AND classoid = 'pg_authid'::regclass WHERE rolname !~ '^pg_'
  UNION ALL SELECT format('GRANT %s ON PARAMETER %s TO %s%s', privilege_type, quote_ident(parname),
    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
  FROM pg_parameter_acl, aclexplode(paracl) WHERE grantee NOT IN (SELECT oid FROM pg_authid WHERE rolsuper)`

interface Membership {
  sql: string
  role: string
  member: string
  grantor: string
  isAdmin: boolean
}

const MEMBERSHIPS = `SELECT format('GRANT %I TO %I WITH ADMIN %s, INHERIT %s, SET %s GRANTED BY %I',
    r.rolname, m.rolname, admin_option::text, inherit_option::text, set_option::text, g.rolname) AS sql,
    r.rolname AS role, m.rolname AS member, g.rolname AS grantor, admin_option AS "isAdmin"
  FROM pg_auth_members JOIN pg_authid AS r ON r.oid = roleid JOIN pg_authid AS m ON m.oid = member JOIN pg_authid AS g ON g.oid = grantor
 WHERE m.rolname !~ '^pg_'`

const SETTINGS = `SELECT pg_get_userbyid(nullif(setrole, 0)) AS role, setconfig AS config FROM pg_db_role_setting WHERE setdatabase = 0`
/** Inserts settings as rows: statements would check the values, and quote lists. */
const SET = `INSERT INTO pg_db_role_setting (setdatabase, setrole, setconfig)
  SELECT 0, coalesce((SELECT oid FROM pg_authid WHERE rolname = $1), 0), $2::text[]`

/** Copies roles with their passwords, memberships, settings, comments and privileges on parameters. */
export async function copyRoles(from: AdminSession, to: AdminSession): Promise<void> {
  for (const { sql } of await from.rows<{ sql: string }>(ROLES, [SUPERUSER])) await to.rows(sql)
  for (const { sql } of orderByGrantor(await from.rows<Membership>(MEMBERSHIPS))) await to.rows(sql)
  for (const { role, config } of await from.rows<{ role: string | null; config: string[] }>(SETTINGS)) {
    await to.rows(SET, [role, config])
  }
}

/** Orders grants so that every grantor already has the admin option. */
function orderByGrantor(memberships: readonly Membership[]): Membership[] {
  const admins = new Set<string>()
  const ordered: Membership[] = []
  for (let left = memberships; left.length > 0; ) {
    const next = left.filter(({ role, grantor }) => grantor === SUPERUSER || admins.has(`${role} ${grantor}`))
    // Superusers other than ours grant without an admin option.
    const granted = next.length > 0 ? next : left
    for (const { role, member, isAdmin } of granted) if (isAdmin) admins.add(`${role} ${member}`)
    ordered.push(...granted)
    left = left.filter((each) => !granted.includes(each))
  }
  return ordered
}

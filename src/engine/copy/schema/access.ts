import { APP_OWNER } from '../../app-roles.ts'
import { type ProjectNames, quoteLiteral, quoteLiterals, TEMPORARY_LOGIN } from '../../names.ts'
import { API_ROLES, READER_GROUP } from '../../roles.ts'
import { SCHEMA_OWNER } from '../../storage/names.ts'
import { COPIED_PUBLICATIONS } from './extras.ts'
import { idOf, SCHEMAS, SCHEMAS_AND_STORAGE, standsAlone } from './scope.ts'

/** Roles of the copy in the place of the parent's, by name. */
export interface Renaming {
  from: ProjectNames
  to: ProjectNames
}

/** The copy's name for a role of the parent's catalogue. */
const roleName = ({ from, to }: Renaming, oid: string) =>
  `CASE ${oid} WHEN 0 THEN 'PUBLIC' ELSE quote_ident(replace(regexp_replace(pg_get_userbyid(${oid}),
     ${quoteLiteral(`^${from.owner}${TEMPORARY_LOGIN}`)}, ${quoteLiteral(from.owner)}), ${quoteLiteral(from.owner)}, ${quoteLiteral(to.owner)})) END`

/** Whether a role means something to the copy: other projects' do not. */
const isKnown = ({ from }: Renaming, oid: string) =>
  `(pg_get_userbyid(${oid}) !~ '^p_[a-z]{20}' OR starts_with(pg_get_userbyid(${oid}), ${quoteLiteral(from.owner)}))`

export const policies = (renaming: Renaming): string => `
  SELECT ${idOf('pg_policy', 'p.oid')} AS id, ARRAY[format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', polname, polrelid::regclass,
      CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
      CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
      (SELECT string_agg(${roleName(renaming, 'role')}, ', ') FROM unnest(polroles) AS role),
      ' USING (' || pg_get_expr(polqual, polrelid) || ')', ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')')] AS statements
    FROM pg_policy AS p JOIN pg_class AS c ON c.oid = polrelid
   WHERE relnamespace IN ${SCHEMAS_AND_STORAGE} AND ${standsAlone('pg_class', 'c.oid')}`

export const rowSecurity = `
  SELECT 'security:' || c.oid AS id, array_remove(ARRAY[
      format('ALTER TABLE %s %s ROW LEVEL SECURITY', c.oid::regclass, CASE WHEN relrowsecurity THEN 'ENABLE' ELSE 'DISABLE' END),
      format('ALTER TABLE %s %sFORCE ROW LEVEL SECURITY', c.oid::regclass, CASE WHEN relforcerowsecurity THEN '' ELSE 'NO ' END),
      CASE WHEN relreplident IN ('f', 'n') THEN format('ALTER TABLE ONLY %s REPLICA IDENTITY %s', c.oid::regclass,
        CASE relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END) END], NULL) AS statements
    FROM pg_class AS c
   WHERE relkind IN ('r', 'p') AND relpersistence <> 't' AND relnamespace IN ${SCHEMAS_AND_STORAGE}
     AND (relrowsecurity OR relforcerowsecurity OR relreplident IN ('f', 'n')
       OR c.oid::regclass::text IN ('storage.objects', 'storage.buckets'))
     AND ${standsAlone('pg_class', 'c.oid')}`

/** Every object with an owner and rights of its own, as the statements on it name it. */
const OBJECTS = `(
  SELECT 'pg_class'::regclass AS catalogue, c.oid, relnamespace AS namespace, relowner AS owner, relacl AS acl,
      CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END AS kind, c.oid::regclass::text AS name FROM pg_class AS c
   WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND relpersistence <> 't'
  UNION ALL SELECT 'pg_proc'::regclass, oid, pronamespace, proowner, proacl, 'ROUTINE ', oid::regprocedure::text FROM pg_proc
  UNION ALL SELECT 'pg_type'::regclass, t.oid, typnamespace, typowner, typacl, 'TYPE ', format_type(t.oid, NULL) FROM pg_type AS t
   WHERE typtype IN ('e', 'd', 'r') OR (typtype = 'c' AND (SELECT relkind FROM pg_class WHERE oid = typrelid) = 'c')
  UNION ALL SELECT 'pg_namespace'::regclass, oid, oid, nspowner, nspacl, 'SCHEMA ', quote_ident(nspname) FROM pg_namespace
  UNION ALL SELECT 'pg_operator'::regclass, oid, oprnamespace, oprowner, NULL, 'OPERATOR ', oid::regoperator::text FROM pg_operator
  UNION ALL SELECT 'pg_collation'::regclass, oid, collnamespace, collowner, NULL, 'COLLATION ', oid::regcollation::text FROM pg_collation
  UNION ALL SELECT 'pg_ts_dict'::regclass, oid, dictnamespace, dictowner, NULL, 'TEXT SEARCH DICTIONARY ', oid::regdictionary::text FROM pg_ts_dict
  UNION ALL SELECT 'pg_ts_config'::regclass, oid, cfgnamespace, cfgowner, NULL, 'TEXT SEARCH CONFIGURATION ', oid::regconfig::text FROM pg_ts_config
  UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, stxnamespace, stxowner, NULL, 'STATISTICS ', format('%I.%I', nspname, stxname)
    FROM pg_statistic_ext AS s JOIN pg_namespace ON pg_namespace.oid = stxnamespace)`

const OWN_OBJECTS = `${OBJECTS} AS o WHERE (namespace IN ${SCHEMAS} OR name IN ('storage.objects', 'storage.buckets'))
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = catalogue AND d.objid = o.oid AND d.objsubid = 0 AND d.deptype = 'e')`

/** Roles that may own something beside the owner; no more powerful one, whatever it owns in the parent. */
const OTHER_OWNERS = quoteLiterals(['pg_database_owner', APP_OWNER, ...API_ROLES])

/** Whose owner, elsewhere perhaps a superuser, owns nothing else in a copy. */
const IS_PLATFORM_SCHEMA = `(kind = 'SCHEMA ' AND name = 'auth' AND pg_get_userbyid(owner) = '${SCHEMA_OWNER}')`

export const owners = (renaming: Renaming): string => `
  SELECT format('ALTER %s%s OWNER TO %s', kind, name, ${ownerName(renaming)}) AS statement FROM ${OWN_OBJECTS}
     AND (pg_get_userbyid(owner) IN (${OTHER_OWNERS}) OR name = 'public' OR ${IS_PLATFORM_SCHEMA}) AND namespace IN ${SCHEMAS}
     AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = catalogue AND d.objid = o.oid AND d.objsubid = 0 AND d.deptype IN ('a', 'i')
       AND kind = 'SEQUENCE ')
  UNION ALL SELECT format('ALTER PUBLICATION %I OWNER TO %I', pubname, pg_get_userbyid(pubowner)) FROM pg_publication AS p
   WHERE pg_get_userbyid(pubowner) IN (${OTHER_OWNERS}) AND ${COPIED_PUBLICATIONS}`

function ownerName({ to }: Renaming): string {
  return `CASE WHEN pg_get_userbyid(owner) IN (${OTHER_OWNERS}) OR ${IS_PLATFORM_SCHEMA} THEN pg_get_userbyid(owner) ELSE ${quoteLiteral(to.owner)} END`
}

/**
 * As rights end up when their grantors give them one after the other; a superuser's statement counts as the object's owner's.
 * What a role has on an object stands in one statement, as there may be a great many of both.
 */
export const grants = (renaming: Renaming): string => {
  const name = (oid: string) => roleName(renaming, oid)
  const owner = ownerName(renaming)
  const statement = (column: string) =>
    `format('GRANT %s ON %s%s TO %s%s', string_agg(privilege_type || ${column}, ', ' ORDER BY place), kind, name,
       CASE WHEN grantee = owner THEN quote_ident(${owner}) ELSE ${name('grantee')} END, CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)`
  const given = (column: string) =>
    `CASE WHEN grantor = owner THEN ${statement(column)}
       ELSE format('SET ROLE %s; %s; RESET ROLE', ${name('grantor')}, ${statement(column)}) END`
  return `
  SELECT statement FROM (
    SELECT 0 AS turn, 0::bigint AS place, format('REVOKE ALL ON %s%s FROM PUBLIC, %I', kind, name, ${owner}) AS statement
      FROM ${OWN_OBJECTS} AND acl IS NOT NULL
    UNION ALL
    -- The template gave rights on these.
    SELECT 0, 1, 'REVOKE ALL ON ' || kind || name || ' FROM ${[...API_ROLES, READER_GROUP].join(', ')}'
      FROM ${OWN_OBJECTS} AND name IN ('storage.objects', 'storage.buckets', 'public')
    UNION ALL
    SELECT CASE WHEN grantor = owner THEN 1 ELSE 2 END, min(place), ${given(`''`)}
      FROM ${OBJECTS} AS o, aclexplode(acl) WITH ORDINALITY AS entry (grantor, grantee, privilege_type, is_grantable, place)
     WHERE (catalogue, o.oid) IN (SELECT catalogue, o.oid FROM ${OWN_OBJECTS}) AND ${isKnown(renaming, 'grantee')} AND ${isKnown(renaming, 'grantor')}
     GROUP BY ${ONE_GRANT}
    UNION ALL
    SELECT CASE WHEN grantor = owner THEN 1 ELSE 2 END, min(place), ${given(`format(' (%I)', attname)`)}
      FROM (SELECT o.*, attname, attacl FROM ${OBJECTS} AS o JOIN pg_attribute ON attrelid = o.oid AND attnum > 0 AND attacl IS NOT NULL
             WHERE o.catalogue = 'pg_class'::regclass AND (catalogue, o.oid) IN (SELECT catalogue, o.oid FROM ${OWN_OBJECTS})) AS c,
        aclexplode(attacl) WITH ORDINALITY AS entry (grantor, grantee, privilege_type, is_grantable, place)
     WHERE ${isKnown(renaming, 'grantee')} AND ${isKnown(renaming, 'grantor')}
     GROUP BY ${ONE_GRANT}, attname
  ) AS s ORDER BY turn, place`
}

const ONE_GRANT = 'catalogue, oid, kind, name, owner, grantor, grantee, is_grantable'

/** Entries for all schemas hold the usual rights too, those for one schema only what comes on top. */
export const defaultRights = (renaming: Renaming): string => {
  const forRole = `format('ALTER DEFAULT PRIVILEGES FOR ROLE %s%s ', ${roleName(renaming, 'defaclrole')}, ' IN SCHEMA ' || quote_ident(nspname))`
  const kind = `CASE defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'ROUTINES' WHEN 'T' THEN 'TYPES'
    WHEN 'n' THEN 'SCHEMAS' ELSE 'LARGE OBJECTS' END`
  return `
  SELECT statement FROM (
    SELECT 0 AS turn, ${forRole} || format('REVOKE ALL ON %s FROM PUBLIC, %s', ${kind}, ${roleName(renaming, 'defaclrole')}) AS statement
      FROM pg_default_acl LEFT JOIN pg_namespace ON pg_namespace.oid = defaclnamespace WHERE defaclnamespace = 0 AND ${isKnown(renaming, 'defaclrole')}
    UNION ALL
    SELECT 1, ${forRole} || format('GRANT %s ON %s TO %s%s', privilege_type, ${kind}, ${roleName(renaming, 'grantee')},
        CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
      FROM pg_default_acl LEFT JOIN pg_namespace ON pg_namespace.oid = defaclnamespace, aclexplode(defaclacl)
     WHERE ${isKnown(renaming, 'defaclrole')} AND ${isKnown(renaming, 'grantee')}
  ) AS s ORDER BY turn`
}

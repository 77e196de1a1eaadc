import { quoteLiterals } from '../../../../engine/names.ts'
import { INTERNAL_SCHEMA } from '../../../../engine/storage/names.ts'

/** Schemas that the platform owns. Policies on storage tables still belong to the project. */
const PLATFORM_SCHEMAS = ['auth', 'extensions', INTERNAL_SCHEMA, 'storage', 'supabase_migrations']

/** Matches objects that belong to extensions. The subquery runs once, because a lookup per table would be slower. */
export const ofExtension = (catalogue: string, id: string) =>
  `${id} IN (SELECT objid FROM pg_depend WHERE classid = '${catalogue}'::regclass AND deptype = 'e')`

/** True if `right` holds for anon or authenticated; `$role` is the placeholder for the role. */
export const eitherRole = (right: string) =>
  `(${right.replaceAll('$role', 'anon')} OR ${right.replaceAll('$role', 'authenticated')})`

/** Common table expressions for the checks. Postgres evaluates only those that a check refers to. */
export const scope = (apiSchemas: readonly string[]) => `
  schemas AS MATERIALIZED (
    SELECT oid, nspname, nspname = ANY (ARRAY[${quoteLiterals(apiSchemas)}]::name[])
        AND ${eitherRole(`has_schema_privilege('$role', oid, 'USAGE')`)} AS served
      FROM pg_namespace
     WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND nspname NOT IN (${quoteLiterals(PLATFORM_SCHEMAS)})),
  relations AS MATERIALIZED (
    SELECT class.oid, nspname::text AS schema, relname::text AS name, format('%I.%I', nspname, relname) AS called,
        relkind AS kind, relrowsecurity AS secured, relispartition AS is_part, served, asks_invoker IS TRUE AS invoker
      FROM pg_class AS class JOIN schemas ON schemas.oid = relnamespace,
        LATERAL (SELECT bool_or(option_value::bool) FROM pg_options_to_table(CASE relkind WHEN 'v' THEN reloptions END)
          WHERE option_name = 'security_invoker') AS options (asks_invoker)
     WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT ${ofExtension('pg_class', 'class.oid')}),
  indexes AS MATERIALIZED (
    SELECT pg_index.*, schema, relations.name, called, index.relname::text AS index, index.relkind AS index_kind, relam,
        index.relispartition AS is_attached, (indkey::int2[])[0:indnkeyatts - 1] AS keys
      FROM pg_index JOIN relations ON relations.oid = indrelid JOIN pg_class AS index ON index.oid = indexrelid),
  policies AS MATERIALIZED (
    SELECT polname::text AS policy, polcmd AS command, polpermissive AS permissive, polroles AS roles, polqual, polwithcheck,
        class.oid, nspname::text AS schema, relname::text AS name, format('%I.%I', nspname, relname) AS called,
        relrowsecurity AS secured
      FROM pg_policy AS policy JOIN pg_class AS class ON class.oid = polrelid
      JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE nspname = 'storage' OR relnamespace IN (SELECT oid FROM schemas))`

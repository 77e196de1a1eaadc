import { quoteLiteral } from '../../../../engine/names.ts'
import { POLICIES_TRUSTING_USER_METADATA } from './expressions.ts'
import { eitherRole, ofExtension } from './scope.ts'

/** Creates a check of relations. `template` is a format string for the name of the relation. */
const relationCheck = (type: string, template: string, where: string) => `
  SELECT schema, name, ${type} AS type, ARRAY[schema, name] AS key, format(${quoteLiteral(template)}, called) AS detail,
      NULL::json AS more
    FROM relations WHERE ${where}`

const READABLE = `served AND ${eitherRole(`has_any_column_privilege('$role', relations.oid, 'SELECT')`)}`
const REACHABLE = `served AND ${eitherRole(`(has_any_column_privilege('$role', relations.oid, 'SELECT, INSERT, UPDATE')
  OR has_table_privilege('$role', relations.oid, 'DELETE, TRUNCATE'))`)}`
const HAS_POLICY = 'EXISTS (SELECT FROM pg_policy WHERE polrelid = relations.oid)'

const VIEW_DEPENDENCIES = `pg_rewrite JOIN pg_depend ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid
  AND refclassid = 'pg_class'::regclass AND refobjid <> ev_class`

/**
 * Views that expose rows of auth.users. A view reads the relations directly below it with its owner's rights; a
 * security-invoker view reads them with the caller's rights, even below other views.
 */
const VIEWS_OF_AUTH_USERS = `
  WITH RECURSIVE opening (oid) AS (
    SELECT ev_class FROM ${VIEW_DEPENDENCIES} JOIN relations ON relations.oid = ev_class,
        pg_class AS users WHERE users.oid = to_regclass('auth.users') AND refobjid = users.oid
       AND (NOT invoker OR NOT users.relrowsecurity AND ${eitherRole(`has_any_column_privilege('$role', users.oid, 'SELECT')`)})
    UNION
    SELECT ev_class FROM opening JOIN ${VIEW_DEPENDENCIES} ON refobjid = opening.oid JOIN relations ON relations.oid = ev_class
     WHERE NOT invoker OR ${eitherRole(`has_any_column_privilege('$role', refobjid, 'SELECT')`)})
  SELECT oid FROM opening`

/** Types that pg_upgrade refuses, with their arrays and domains. */
const REG_TYPES = `SELECT oid FROM pg_type WHERE oid IN ('regcollation'::regtype, 'regconfig'::regtype, 'regdictionary'::regtype,
  'regnamespace'::regtype, 'regoper'::regtype, 'regoperator'::regtype, 'regproc'::regtype, 'regprocedure'::regtype)`
const REG_TYPES_AND_DERIVED = `WITH RECURSIVE held (oid) AS (${REG_TYPES} UNION
  SELECT pg_type.oid FROM pg_type JOIN held ON held.oid IN (typbasetype, typelem) WHERE typtype = 'd' OR typcategory = 'A')
  SELECT oid FROM held`

export const securityChecks = {
  rls_disabled_in_public: relationCheck(
    "'table'",
    'The table %s is open to the API without row-level security.',
    `kind IN ('r', 'p') AND NOT secured AND ${REACHABLE}`,
  ),
  policy_exists_rls_disabled: relationCheck(
    "'table'",
    'The table %s has policies, but its row-level security is disabled.',
    `NOT secured AND ${HAS_POLICY}`,
  ),
  rls_enabled_no_policy: relationCheck(
    "'table'",
    'The table %s has row-level security but no policy.',
    `secured AND NOT ${HAS_POLICY}`,
  ),
  security_definer_view: relationCheck(
    "'view'",
    "The view %s is open to the API and reads with its owner's rights.",
    `kind = 'v' AND NOT invoker AND ${READABLE}`,
  ),
  materialized_view_in_api: relationCheck(
    "'materialized view'",
    'The materialized view %s is open to the API.',
    `kind = 'm' AND ${READABLE}`,
  ),
  foreign_table_in_api: relationCheck(
    "'foreign table'",
    'The foreign table %s is open to the API.',
    `kind = 'f' AND ${REACHABLE}`,
  ),
  auth_users_exposed: relationCheck(
    `CASE kind WHEN 'v' THEN 'view' ELSE 'materialized view' END`,
    'The view %s shows rows of auth.users to the roles of the API.',
    `oid IN (${VIEWS_OF_AUTH_USERS}) AND ${READABLE}`,
  ),

  function_search_path_mutable: `
    SELECT nspname::text AS schema, proname::text AS name, 'function' AS type,
        ARRAY[nspname::text, proname::text, arguments] AS key,
        format('The function %I.%I(%s) does not set search_path.', nspname, proname, left(arguments, 500)) AS detail, NULL::json AS more
      FROM pg_proc JOIN schemas ON schemas.oid = pronamespace JOIN pg_language ON pg_language.oid = prolang,
        LATERAL (SELECT pg_get_function_identity_arguments(pg_proc.oid)) AS of (arguments)
     WHERE prokind IN ('f', 'p') AND lanname NOT IN ('c', 'internal') AND prosqlbody IS NULL
       AND NOT EXISTS (SELECT FROM unnest(proconfig) AS setting WHERE setting LIKE 'search\\_path=%')
       AND NOT ${ofExtension('pg_proc', 'pg_proc.oid')}`,

  extension_in_public: `
    SELECT nspname::text AS schema, extname::text AS name, 'extension' AS type, ARRAY[extname::text] AS key,
        format('The extension %I is in the schema public.', extname) AS detail, NULL::json AS more
      FROM pg_extension JOIN schemas ON schemas.oid = extnamespace WHERE nspname = 'public'`,

  rls_references_user_metadata: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, policy] AS key,
        format('The policy %I of the table %s depends on user metadata.', policy, called) AS detail, NULL::json AS more
      FROM (${POLICIES_TRUSTING_USER_METADATA}) AS trusting`,

  unsupported_reg_types: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, attname::text] AS key,
        format('The column %I of the table %s is of the type %s.', attname, called, format_type(atttypid, NULL)) AS detail,
        NULL::json AS more
      FROM relations JOIN pg_attribute ON attrelid = relations.oid
     WHERE kind IN ('r', 'p', 'm') AND attnum > 0 AND NOT attisdropped AND atttypid IN (${REG_TYPES_AND_DERIVED})`,

  log_connections_not_enabled: `
    SELECT NULL AS schema, NULL AS name, 'compliance' AS type, ARRAY[]::text[] AS key,
        'The server has log_connections off.' AS detail, NULL::json AS more
     WHERE lower(current_setting('log_connections')) IN ('', 'off', 'false', 'no', '0')`,
} satisfies Record<string, string>

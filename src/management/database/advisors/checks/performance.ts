import { POLICIES_EVALUATED_PER_ROW } from './expressions.ts'

/** The maximum number of names listed in a finding. */
const NAMES_MAX = 10

const listOf = (names: string) => `array_to_string((${names})[1:${NAMES_MAX}], ', ')`

/** The definition of an index except its name. */
const INDEX_DEFINITION = `indrelid, relam, indkey::text, indclass::text, indcollation::text, indoption::text, indnullsnotdistinct,
  pg_get_expr(indexprs, indrelid), pg_get_expr(indpred, indrelid)`

/** The permissive policies of a table by role and command. `is_named` is true if a policy names the role itself. */
const PERMISSIVE_POLICIES = `
  SELECT policies.oid, schema, name, called, role, action, array_agg(DISTINCT policy ORDER BY policy) AS found,
      bool_or(role = ANY (roles)) AS is_named
    FROM policies
    JOIN (SELECT DISTINCT oid, unnest(roles) AS role FROM policies WHERE permissive) AS roles_of USING (oid),
      (VALUES ('r', 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE')) AS commands (letter, action)
   WHERE permissive AND secured AND roles && ARRAY[role, 0::oid] AND command IN (letter::"char", '*')
   GROUP BY policies.oid, schema, name, called, role, action`

export const performanceChecks = {
  unindexed_foreign_keys: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, conname::text] AS key,
        format('The foreign key %I of the table %s has no index that begins with its columns.', conname, called) AS detail,
        json_build_object('fkey_name', conname, 'fkey_columns', conkey) AS more
      FROM pg_constraint JOIN relations ON relations.oid = conrelid
     WHERE contype = 'f' AND conparentid = 0 AND NOT EXISTS (SELECT FROM indexes
       WHERE indrelid = conrelid AND indisvalid AND indpred IS NULL AND keys[1:cardinality(conkey)] @> conkey
         AND relam IN (SELECT oid FROM pg_am WHERE amname IN ('btree', 'hash')))`,

  no_primary_key: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name] AS key,
        format('The table %s has no primary key.', called) AS detail, NULL::json AS more
      FROM relations
     WHERE kind IN ('r', 'p') AND NOT is_part
       AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = relations.oid AND indisprimary)`,

  unused_index: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, index] AS key,
        format('No query has used the index %I of the table %s.', index, called) AS detail, NULL::json AS more
      FROM indexes
     WHERE index_kind = 'i' AND NOT (indisunique OR indisexclusion OR indisreplident)
       AND pg_stat_get_numscans(indexrelid) = 0`,

  duplicate_index: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name] || found[1:${NAMES_MAX}] AS key,
        format('The indexes %s of the table %s are equal. One of them is enough.', ${listOf('called_so')}, called) AS detail,
        NULL::json AS more
      FROM (SELECT schema, name, called, array_agg(index ORDER BY index COLLATE "C") AS found,
                array_agg(quote_ident(index) ORDER BY index COLLATE "C") AS called_so
              FROM indexes WHERE NOT is_attached AND indisvalid
             GROUP BY schema, name, called, ${INDEX_DEFINITION} HAVING count(*) > 1) AS equal`,

  multiple_permissive_policies: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, role_name, action] AS key,
        format('The table %s has %s permissive policies for %s of the role %s: %s.', called, cardinality(found), action,
          role_name, ${listOf('found')}) AS detail,
        NULL::json AS more
      FROM (${PERMISSIVE_POLICIES}) AS together, LATERAL (SELECT CASE role WHEN 0 THEN 'public' ELSE pg_get_userbyid(role)::text END) AS named (role_name)
     WHERE cardinality(found) > 1 AND is_named`,

  auth_rls_initplan: `
    SELECT schema, name, 'table' AS type, ARRAY[schema, name, policy] AS key,
        format('The policy %I of the table %s calls current_setting() or a function of the schema auth for each row.', policy, called) AS detail,
        NULL::json AS more
      FROM (${POLICIES_EVALUATED_PER_ROW}) AS calling`,
} satisfies Record<string, string>

import { quoteLiteral } from '../../../../engine/names.ts'

/** Blanks out string literals and quoted names, which could look like calls. */
const withoutQuoted = (expression: string) =>
  `regexp_replace(regexp_replace(${expression}, ${quoteLiteral(`'([^']|'')*'`)}, ${quoteLiteral("''")}, 'g'), '"([^"]|"")*"', '""', 'g')`

/** Matches balanced parentheses up to this depth, as a further alternative of a pattern. */
const balanced = (depth: number): string => (depth === 0 ? '' : `|\\((?:[^()]${balanced(depth - 1)})*\\)`)
/** Matches a subquery without FROM, which Postgres evaluates once per statement. */
const ONCE = `\\( SELECT (?:(?!\\mFROM\\M)[^()]${balanced(8)})*\\)`
const CALL = '\\m(auth\\.\\w+|current_setting)\\('
const METADATA = `'[^']*(user_metadata|raw_user_meta_data)[^']*'|raw_user_meta_data`

/** Both conditions of a policy as SQL text. */
const EXPRESSION = `concat(pg_get_expr(polqual, oid), ' ', pg_get_expr(polwithcheck, oid))`

/** Selects policies whose parse trees refer to these functions. Only those are deparsed, because deparsing is the slow part. */
const policiesReferringTo = (functions: string) => `
  SELECT *, ${EXPRESSION} AS expression FROM policies
   WHERE concat(polqual::text, polwithcheck::text) ~ (
     SELECT concat(':(funcid|relid) (', string_agg(id::text, '|'), ') ') FROM (
       SELECT pg_proc.oid FROM pg_proc LEFT JOIN pg_namespace ON pg_namespace.oid = pronamespace
        WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'current_setting' OR nspname = 'auth' AND ${functions}
       UNION ALL SELECT to_regclass('auth.users')::oid WHERE to_regclass('auth.users') IS NOT NULL) AS named (id))`

/** Policies that evaluate the caller's identity again for each row. */
export const POLICIES_EVALUATED_PER_ROW = `SELECT * FROM (${policiesReferringTo('true')} AND secured) AS calling
  WHERE regexp_replace(${withoutQuoted('expression')}, ${quoteLiteral(ONCE)}, '', 'g') ~ ${quoteLiteral(CALL)}`

/** Policies that read metadata which users can write themselves. */
export const POLICIES_TRUSTING_USER_METADATA = `SELECT * FROM (${policiesReferringTo(`proname = 'jwt'`)}) AS trusting
  WHERE expression ~ ${quoteLiteral(METADATA)} AND expression ~ '\\mauth\\.(jwt|users)\\M|request\\.jwt\\.claim'`

import { quoteLiteral } from '../../../../engine/names.ts'

/** A string or a quoted name says nothing of what an expression calls. */
const withoutQuoted = (expression: string) =>
  `regexp_replace(regexp_replace(${expression}, ${quoteLiteral(`'([^']|'')*'`)}, ${quoteLiteral("''")}, 'g'), '"([^"]|"")*"', '""', 'g')`

const balanced = (depth: number): string => (depth === 0 ? '' : `|\\((?:[^()]${balanced(depth - 1)})*\\)`)
/** A subquery that reads from nothing: Postgres runs it once for a statement. */
const ONCE = `\\( SELECT (?:(?!\\mFROM\\M)[^()]${balanced(8)})*\\)`
const CALL = '\\m(auth\\.\\w+|current_setting)\\('
const METADATA = `'[^']*(user_metadata|raw_user_meta_data)[^']*'|raw_user_meta_data`

/** Of a policy, both its conditions as Postgres writes them. */
const EXPRESSION = `concat(pg_get_expr(polqual, oid), ' ', pg_get_expr(polwithcheck, oid))`

/** Policies whose parse trees name one of these: writing a policy out is what costs, so few are. */
const naming = (functions: string) => `
  SELECT *, ${EXPRESSION} AS expression FROM policies
   WHERE concat(polqual::text, polwithcheck::text) ~ (
     SELECT concat(':(funcid|relid) (', string_agg(id::text, '|'), ') ') FROM (
       SELECT pg_proc.oid FROM pg_proc LEFT JOIN pg_namespace ON pg_namespace.oid = pronamespace
        WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'current_setting' OR nspname = 'auth' AND ${functions}
       UNION ALL SELECT to_regclass('auth.users')::oid WHERE to_regclass('auth.users') IS NOT NULL) AS named (id))`

/** Policies that call what tells who asks for each row anew. */
export const CALLING = `SELECT * FROM (${naming('true')} AND secured) AS calling
  WHERE regexp_replace(${withoutQuoted('expression')}, ${quoteLiteral(ONCE)}, '', 'g') ~ ${quoteLiteral(CALL)}`

/** Policies that read what users write of themselves. */
export const TRUSTING = `SELECT * FROM (${naming(`proname = 'jwt'`)}) AS trusting
  WHERE expression ~ ${quoteLiteral(METADATA)} AND expression ~ '\\mauth\\.(jwt|users)\\M|request\\.jwt\\.claim'`

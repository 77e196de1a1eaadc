import type { Fact, StableId } from '@supabase/pg-delta/core'
import type { ExtensionHandler } from '@supabase/pg-delta/integrations'
import type { PlanOptions } from '@supabase/pg-delta/plan'
import { loginRoles, type ProjectNames, quoteLiteral, quoteLiterals, TEMPORARY_LOGIN } from '../names.ts'

const KIND = { ext: 'pilothouse', intentKind: 'extra' }

interface ExtraRow {
  schema: string
  key: string
  /** The statements that create the fact (`set`), and those that remove it (`reset`). */
  set: string[]
  reset: string[]
  relation: string
  relation_schema: string
  relation_kind: string
  columns: string[]
  /** A constraint or trigger of the relation or of a table above it. */
  part?: { kind: 'constraint' | 'trigger'; schema: string; table: string; name: string }
  functions?: { schema: string; name: string; args: string[] }[] | null
}

/** Adds facts that the library does not compare itself. */
export function extrasHandler(isWanted: (schema: string) => boolean, names: ProjectNames): ExtensionHandler {
  return {
    extension: KIND.ext,
    async capture(ctx) {
      const rows: ExtraRow[] = []
      for (const query of [...QUERIES, viewColumnsQuery(names)]) {
        rows.push(...((await ctx.query(query)) as unknown as ExtraRow[]))
      }
      const selected = rows.filter(({ schema, relation_schema }) => isWanted(schema) && isWanted(relation_schema))
      return {
        facts: selected.map((row) => ({ id: idOf(row), payload: { set: row.set, reset: row.reset } })),
        edges: selected.flatMap((row) =>
          [relationOf(row), ...columnsOf(row), ...functionsOf(row), ...(row.part ? [row.part] : [])].map((to) => ({
            from: idOf(row),
            to,
            kind: 'depends' as const,
          })),
        ),
      }
    },
  }
}

type Rules = NonNullable<PlanOptions['intentRules']> extends ReadonlyMap<string, infer Rule> ? Rule : never

const rules: Rules = {
  create: (fact) => statementsOf(fact).map((sql) => ({ sql, lockClass: 'none' })),
  drop: ({ payload }) => ({ sql: statementsIn(payload.reset).join(';\n'), lockClass: 'none' }),
  attributes: { set: 'replace', reset: 'replace' },
  /** Sorts after all object kinds of the library. */
  weight: 90,
}
export const extrasRules: PlanOptions['intentRules'] = new Map([[`${KIND.ext}\0${KIND.intentKind}`, rules]])

export const statementsOf = ({ payload }: Fact): string[] => statementsIn(payload.set)

const statementsIn = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : [])

const idOf = ({ key }: ExtraRow): StableId => ({ kind: 'extensionIntent', ...KIND, key })

const RELATION_KINDS = { v: 'view', m: 'materializedView', f: 'foreignTable' } as const

function relationOf({ relation, relation_schema, relation_kind }: ExtraRow): StableId {
  const kind = RELATION_KINDS[relation_kind as keyof typeof RELATION_KINDS] ?? 'table'
  return { kind, schema: relation_schema, name: relation }
}

const columnsOf = ({ relation, relation_schema, columns }: ExtraRow): StableId[] =>
  columns.map((name) => ({ kind: 'column', schema: relation_schema, table: relation, name }))

const functionsOf = ({ functions }: ExtraRow): StableId[] =>
  (functions ?? []).map((named) => ({ kind: 'function', ...named }))

/** The functions that an expression calls, which cannot be dropped before it. */
const calledBy = (classId: string, oid: string) => `
         (SELECT json_agg(json_build_object('schema', fn.nspname, 'name', f.proname, 'args',
                   ARRAY(SELECT format_type(arg, NULL) FROM unnest(f.proargtypes) WITH ORDINALITY AS arguments (arg, place) ORDER BY place)))
            FROM pg_depend fd
            JOIN pg_proc f ON f.oid = fd.refobjid
            JOIN pg_namespace fn ON fn.oid = f.pronamespace
           WHERE fd.classid = '${classId}'::regclass AND fd.objid = ${oid} AND fd.refclassid = 'pg_proc'::regclass) AS functions`

const STATISTICS_QUERY = `
  SELECT n.nspname AS schema, 'statistics ' || named.name AS key,
         array_remove(ARRAY[
           pg_get_statisticsobjdef(s.oid),
           'ALTER STATISTICS ' || named.name || ' SET STATISTICS ' || nullif(s.stxstattarget, -1),
           'COMMENT ON STATISTICS ' || named.name || ' IS ' || quote_literal(obj_description(s.oid, 'pg_statistic_ext'))
         ], NULL) AS set,
         ARRAY['DROP STATISTICS ' || named.name] AS reset,
         c.relname AS relation, rn.nspname AS relation_schema, c.relkind AS relation_kind,
         ARRAY(SELECT a.attname::text FROM pg_depend d
                 JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                WHERE d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid > 0) AS columns,
         ${calledBy('pg_statistic_ext', 's.oid')}
    FROM pg_statistic_ext s
    JOIN pg_namespace n ON n.oid = s.stxnamespace
    JOIN pg_class c ON c.oid = s.stxrelid
    JOIN pg_namespace rn ON rn.oid = c.relnamespace
   CROSS JOIN LATERAL (SELECT format('%I.%I', n.nspname, s.stxname) AS name) AS named`

const columnsQuery = (kinds: string, { set, reset, condition }: { set: string; reset: string; condition: string }) => `
  SELECT n.nspname AS schema, 'column ' || named.relation || '.' || named.name AS key,
         array_remove(${set}, NULL) AS set, array_remove(${reset}, NULL) AS reset,
         c.relname AS relation, n.nspname AS relation_schema, c.relkind AS relation_kind,
         ARRAY[a.attname::text] AS columns,
         ${calledBy('pg_attrdef', `CASE c.relkind WHEN 'v' THEN ad.oid END`)}
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN (${kinds})
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef ad ON ad.adrelid = c.oid AND ad.adnum = a.attnum
   CROSS JOIN LATERAL (
     SELECT format('%I.%I', n.nspname, c.relname) AS relation, quote_ident(a.attname) AS name,
            format('ALTER %s %I.%I ALTER COLUMN %I ',
              CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END,
              n.nspname, c.relname, a.attname) AS alter
   ) AS named
   WHERE a.attnum > 0 AND NOT a.attisdropped AND (${condition})
     AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e')`

const STORAGE = `CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END`
const hasStorage = 'a.attstorage <> t.typstorage'
const hasTarget = 'a.attstattarget >= 0'
const hasCompression = `a.attcompression <> ''`

const OPTIONS = `array_to_string(ARRAY(SELECT format('%I = %s', split_part(o, '=', 1), split_part(o, '=', 2)) FROM unnest(a.attoptions) AS o), ', ')`
const OPTION_NAMES = `array_to_string(ARRAY(SELECT quote_ident(split_part(o, '=', 1)) FROM unnest(a.attoptions) AS o), ', ')`

/** Storage, compression and statistics settings of columns. */
const TABLE_COLUMNS_QUERY = columnsQuery(`'r', 'p', 'm'`, {
  set: `ARRAY[
    CASE WHEN ${hasStorage} THEN named.alter || 'SET STORAGE ' || ${STORAGE} END,
    CASE WHEN ${hasCompression} THEN named.alter || 'SET COMPRESSION ' || CASE a.attcompression WHEN 'l' THEN 'lz4' ELSE 'pglz' END END,
    CASE WHEN ${hasTarget} THEN named.alter || 'SET STATISTICS ' || a.attstattarget END,
    CASE WHEN a.attoptions IS NOT NULL THEN named.alter || 'SET (' || ${OPTIONS} || ')' END]`,
  reset: `ARRAY[
    CASE WHEN ${hasStorage} THEN named.alter || 'SET STORAGE DEFAULT' END,
    CASE WHEN ${hasCompression} THEN named.alter || 'SET COMPRESSION DEFAULT' END,
    CASE WHEN ${hasTarget} THEN named.alter || 'SET STATISTICS -1' END,
    CASE WHEN a.attoptions IS NOT NULL THEN named.alter || 'RESET (' || ${OPTION_NAMES} || ')' END]`,
  condition: `${hasStorage} OR ${hasTarget} OR ${hasCompression} OR a.attoptions IS NOT NULL`,
}).replace(`'column '`, `'column settings '`)

/** Omits grants to the project's own roles: the owner has these rights anyway. */
const columnGrants = (names: ProjectNames) => (statement: string) =>
  `ARRAY(
  SELECT ${statement} FROM aclexplode(a.attacl) AS x LEFT JOIN pg_roles g ON g.oid = x.grantee
   WHERE g.rolname IS NULL OR (g.rolname NOT IN (${quoteLiterals(loginRoles(names))}) AND g.rolname !~ ${quoteLiteral(TEMPORARY_LOGIN)})
   GROUP BY g.rolname, x.is_grantable ORDER BY g.rolname, x.is_grantable)`
const GRANTEE = `CASE WHEN g.rolname IS NULL THEN 'PUBLIC' ELSE quote_ident(g.rolname) END`

/** Defaults, comments and grants of columns of views, which the library does not read. */
function viewColumnsQuery(names: ProjectNames): string {
  const grants = columnGrants(names)
  return columnsQuery(`'v', 'm'`, {
    set: `ARRAY[
    named.alter || 'SET DEFAULT ' || pg_get_expr(ad.adbin, ad.adrelid),
    'COMMENT ON COLUMN ' || named.relation || '.' || named.name || ' IS ' || quote_literal(col_description(c.oid, a.attnum))
  ] || ${grants(
    `format('GRANT %s ON TABLE %s TO %s', string_agg(x.privilege_type || ' (' || named.name || ')', ', ' ORDER BY x.privilege_type),
       named.relation, ${GRANTEE}) || CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END`,
  )}`,
    reset: `ARRAY[
    CASE WHEN ad.oid IS NOT NULL THEN named.alter || 'DROP DEFAULT' END,
    CASE WHEN col_description(c.oid, a.attnum) IS NOT NULL THEN 'COMMENT ON COLUMN ' || named.relation || '.' || named.name || ' IS NULL' END
  ] || ${grants(`format('REVOKE ALL (%s) ON TABLE %s FROM %s', named.name, named.relation, ${GRANTEE})`)}`,
    condition: 'ad.oid IS NOT NULL OR a.attacl IS NOT NULL OR col_description(c.oid, a.attnum) IS NOT NULL',
  })
}

const tablesQuery = (
  name: string,
  { set, reset, from, condition }: Record<'set' | 'reset' | 'from' | 'condition', string>,
) => `
  SELECT n.nspname AS schema, format('${name} of %I.%I', n.nspname, c.relname) AS key,
         ARRAY[format('ALTER TABLE %I.%I ', n.nspname, c.relname) || ${set}] AS set,
         ARRAY[format('ALTER TABLE %I.%I ', n.nspname, c.relname) || ${reset}] AS reset,
         c.relname AS relation, n.nspname AS relation_schema, c.relkind AS relation_kind, ARRAY[]::text[] AS columns
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace ${from}
   WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND ${condition}`

/** Further parents, the type and the TOAST options of tables: the library reads the first parent only. */
const TABLES_QUERIES = [
  tablesQuery(`parent ' || i.inhseqno || '`, {
    set: `format('INHERIT %I.%I', pn.nspname, p.relname)`,
    reset: `format('NO INHERIT %I.%I', pn.nspname, p.relname)`,
    from: `JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhseqno > 1
           JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace`,
    condition: 'NOT c.relispartition',
  }),
  tablesQuery('type', {
    set: `format('OF %I.%I', tn.nspname, t.typname)`,
    reset: `'NOT OF'`,
    from: 'JOIN pg_type t ON t.oid = c.reloftype JOIN pg_namespace tn ON tn.oid = t.typnamespace',
    condition: 'c.reloftype <> 0',
  }),
  tablesQuery('toast options', {
    set: `'SET (' || (SELECT string_agg('toast.' || o, ', ') FROM unnest(toast.reloptions) AS o) || ')'`,
    reset: `'RESET (' || (SELECT string_agg('toast.' || split_part(o, '=', 1), ', ') FROM unnest(toast.reloptions) AS o) || ')'`,
    from: 'JOIN pg_class toast ON toast.oid = c.reltoastrelid',
    condition: 'toast.reloptions IS NOT NULL',
  }),
]

/** Options of the indexes of constraints, which the definition of a constraint omits. */
const CONSTRAINTS_QUERY = `
  SELECT n.nspname AS schema, format('options of constraint %I of %I.%I', con.conname, n.nspname, c.relname) AS key,
         ARRAY[format('ALTER INDEX %I.%I SET (', n.nspname, i.relname) || (SELECT string_agg(o, ', ') FROM unnest(i.reloptions) AS o) || ')'] AS set,
         ARRAY[format('ALTER INDEX %I.%I RESET (', n.nspname, i.relname) ||
           (SELECT string_agg(split_part(o, '=', 1), ', ') FROM unnest(i.reloptions) AS o) || ')'] AS reset,
         c.relname AS relation, n.nspname AS relation_schema, c.relkind AS relation_kind, ARRAY[]::text[] AS columns,
         json_build_object('kind', 'constraint', 'schema', n.nspname, 'table', c.relname, 'name', con.conname) AS part
    FROM pg_constraint con
    JOIN pg_class i ON i.oid = con.conindid AND i.relkind = 'i' AND i.reloptions IS NOT NULL
    JOIN pg_class c ON c.oid = con.conrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
   WHERE con.contype IN ('p', 'u', 'x') AND con.conparentid = 0`

const stateOf = (trigger: string) =>
  `CASE ${trigger}.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE' END`

/** Triggers of partitions that do not fire when that of the partitioned table does. */
const TRIGGERS_QUERY = `
  SELECT n.nspname AS schema, format('trigger %I of %I.%I, else %s', t.tgname, n.nspname, c.relname, root.tgenabled) AS key,
         ARRAY[format('ALTER TABLE ONLY %I.%I %s TRIGGER %I', n.nspname, c.relname, ${stateOf('t')}, t.tgname)] AS set,
         ARRAY[format('ALTER TABLE ONLY %I.%I %s TRIGGER %I', n.nspname, c.relname, ${stateOf('root')}, t.tgname)] AS reset,
         c.relname AS relation, n.nspname AS relation_schema, c.relkind AS relation_kind, ARRAY[]::text[] AS columns,
         json_build_object('kind', 'trigger', 'schema', rn.nspname, 'table', rc.relname, 'name', root.tgname) AS part
    FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
   CROSS JOIN LATERAL pg_partition_ancestors(c.oid) AS above (relid)
    JOIN pg_trigger root ON root.tgrelid = above.relid AND root.tgname = t.tgname AND root.tgparentid = 0 AND NOT root.tgisinternal
    JOIN pg_class rc ON rc.oid = root.tgrelid
    JOIN pg_namespace rn ON rn.oid = rc.relnamespace
   WHERE t.tgparentid <> 0 AND t.tgenabled <> root.tgenabled`

const notNullOf = (column: string) =>
  `con.contype = 'n' AND NOT con.convalidated AND con.conrelid = ${column}.attrelid AND con.conkey = ARRAY[${column}.attnum]`

/** Whether the rows of a column have not been checked for null. */
export const isNotNullUnchecked = (column: string) =>
  `EXISTS (SELECT FROM pg_constraint con WHERE ${notNullOf(column)})`

const NOT_NULL_QUERY = `
  SELECT n.nspname AS schema, format('not null %I of %I.%I.%I', con.conname, n.nspname, c.relname, a.attname) AS key,
         ARRAY[format('ALTER TABLE %I.%I ADD CONSTRAINT %I NOT NULL %I NOT VALID', n.nspname, c.relname, con.conname, a.attname)] AS set,
         ARRAY[format('ALTER TABLE %I.%I DROP CONSTRAINT %I', n.nspname, c.relname, con.conname)] AS reset,
         c.relname AS relation, n.nspname AS relation_schema, c.relkind AS relation_kind, ARRAY[a.attname::text] AS columns
    FROM pg_attribute a
    JOIN pg_constraint con ON ${notNullOf('a')} AND con.coninhcount = 0
    JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`

const QUERIES = [
  STATISTICS_QUERY,
  TABLE_COLUMNS_QUERY,
  ...TABLES_QUERIES,
  CONSTRAINTS_QUERY,
  TRIGGERS_QUERY,
  NOT_NULL_QUERY,
]

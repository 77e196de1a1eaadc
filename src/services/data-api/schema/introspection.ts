import type { Statement } from '../../../engine/engine.ts'
import { SETTINGS_VERSION, VERSION } from './version.ts'

/** The result of `introspect`: one JSON text with short names and arrays, because a database may have thousands of tables. */
export interface Introspection {
  version: string
  settingsVersion: string | null
  tables: readonly {
    o: number
    s: string
    n: string
    k: 'r' | 'v' | 'm' | 'f' | 'p'
    /** Bits of the changes that the relation accepts: updates (4), inserts (8) and deletes (16). */
    w: number
    c: readonly (readonly [number: number, name: string, type: string, defaultSql: string | null])[]
  }[]
  keys: readonly { o: number; primary: boolean; c: readonly string[] }[]
  foreignKeys: readonly { n: string; o: number; f: number; c: readonly string[]; fc: readonly string[] }[]
  /** Columns of views that are columns of other relations. */
  origins: readonly (readonly [view: number, column: number, relation: number, relationColumn: number])[]
  /** All relations that keys or origins name, whether exposed or not. */
  names: readonly (readonly [oid: number, schema: string, name: string, columns: readonly (string | null)[]])[]
  routines: readonly {
    s: string
    n: string
    v: 'v' | 's' | 'i'
    set: boolean
    /** The number of rows that the function declares to return. */
    rows: number
    kind: 'void' | 'scalar' | 'composite'
    rel: number | null
    media: string | null
    names: readonly string[] | null
    modes: readonly string[] | null
    types: readonly string[]
    defaults: number
    /** The relation of the only parameter, for computed relationships. */
    of: number | null
    settings: readonly string[] | null
  }[]
  /** Aggregates that return a domain named after a media type. Those without a relation take any rows. */
  handlers: readonly (readonly [schema: string, name: string, media: string, relation: number | null])[]
  /** Functions of implicit casts between domains and the types json and text. */
  casts: readonly (readonly [source: string, target: string, schema: string, name: string])[]
  timezones: readonly string[]
  settings: Readonly<Record<string, string>>
  roleSettings: Readonly<Record<string, Readonly<Record<string, string>>>>
  hasGeoJson: boolean
}

/**
 * Top-level target entries of a view stand two braces deep in the text of its rule; a subquery's are deeper. Each names the
 * relation and the column that it comes from.
 */
const ORIGINS = String.raw`
  SELECT view, (entry[1])::int AS number, (entry[2])::oid AS relation, (entry[3])::int AS "column" FROM (
    SELECT view, entry, sum(CASE token WHEN '{' THEN 1 WHEN '}' THEN -1 ELSE 0 END) OVER (PARTITION BY view ORDER BY at) AS depth
    FROM (
      SELECT r.ev_class AS view, match[1] AS token, at, CASE WHEN match[2] IS NOT NULL THEN match[2:4] END AS entry
      FROM pg_rewrite AS r JOIN pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
      JOIN pg_namespace AS n ON n.oid = v.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      CROSS JOIN LATERAL regexp_matches(r.ev_action::text,
        '(\\.|[{}]|:resno (\d+) :resname (?:\\.|[^ ])* :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (\d+))', 'g')
        WITH ORDINALITY AS m (match, at)
      WHERE r.ev_type = '1') AS tokens) AS entries
  WHERE entry IS NOT NULL AND depth = 2 AND entry[2] <> '0'`

const exposed = 'n.nspname = ANY ($1::text[])'

/**
 * Runs with the search path `pg_catalog`, so that types and defaults are qualified. Extensions' functions are callable only if their
 * schema is exposed.
 */
export function introspect(schemas: readonly string[]): Statement {
  return {
    text: `WITH origins AS MATERIALIZED (${ORIGINS}),
      relations AS MATERIALIZED (
        SELECT c.oid, n.nspname, c.relname, c.relkind, c.relnatts FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE ${exposed} AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND NOT c.relispartition
          AND NOT pg_is_other_temp_schema(n.oid)),
      columns AS MATERIALIZED (
        SELECT a.attrelid, json_agg(json_build_array(a.attnum, a.attname,
            format_type(a.atttypid, nullif(a.atttypmod, -1)),
            CASE WHEN a.attidentity <> '' THEN (SELECT format('nextval(%L)', s.objid::regclass) FROM pg_depend AS s
                WHERE s.classid = 'pg_class'::regclass AND s.refclassid = s.classid AND s.refobjid = a.attrelid
                  AND s.refobjsubid = a.attnum AND s.deptype = 'i')
              WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid),
                CASE WHEN t.typtype = 'd' THEN t.typdefault END) END) ORDER BY a.attnum) AS list
        FROM relations AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_type AS t ON t.oid = a.atttypid
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        GROUP BY a.attrelid),
      keys AS MATERIALIZED (
        SELECT k.conrelid AS oid, k.contype = 'p' AS primary, (SELECT array_agg(a.attname ORDER BY u.at)
          FROM unnest(k.conkey) WITH ORDINALITY AS u (number, at) JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number) AS cols
        FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE k.contype IN ('p', 'u') AND n.nspname NOT IN ('pg_catalog', 'information_schema')),
      foreign_keys AS MATERIALIZED (
        SELECT k.conname, k.conrelid, k.confrelid,
          (SELECT array_agg(a.attname ORDER BY u.at) FROM unnest(k.conkey) WITH ORDINALITY AS u (number, at)
            JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number) AS cols,
          (SELECT array_agg(a.attname ORDER BY u.at) FROM unnest(k.confkey) WITH ORDINALITY AS u (number, at)
            JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number) AS fcols
        FROM pg_constraint AS k WHERE k.contype = 'f' AND k.conparentid = 0)
      SELECT json_build_object(
        'version', ${VERSION}, 'settingsVersion', ${SETTINGS_VERSION},
        'tables', (SELECT coalesce(json_agg(json_build_object('o', r.oid::int8, 's', r.nspname, 'n', r.relname, 'k', r.relkind,
            'w', CASE WHEN r.relkind IN ('r', 'p') THEN 28 WHEN r.relkind = 'm' THEN 0 ELSE pg_relation_is_updatable(r.oid, true) END,
            'c', coalesce(c.list, '[]'::json))), '[]') FROM relations AS r LEFT JOIN columns AS c ON c.attrelid = r.oid),
        'keys', (SELECT coalesce(json_agg(json_build_object('o', oid::int8, 'primary', "primary", 'c', cols)), '[]') FROM keys),
        'foreignKeys', (SELECT coalesce(json_agg(json_build_object('n', conname, 'o', conrelid::int8, 'f', confrelid::int8,
            'c', cols, 'fc', fcols) ORDER BY conname), '[]') FROM foreign_keys),
        'origins', (SELECT coalesce(json_agg(json_build_array(view::int8, number, relation::int8, "column")), '[]') FROM origins),
        'names', (SELECT coalesce(json_agg(json_build_array(c.oid::int8, n.nspname, c.relname,
            (SELECT json_agg(CASE WHEN a.attisdropped THEN NULL ELSE a.attname END ORDER BY a.attnum) FROM pg_attribute AS a
              WHERE a.attrelid = c.oid AND a.attnum > 0))), '[]')
          FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
          WHERE c.oid IN (SELECT conrelid FROM foreign_keys UNION SELECT confrelid FROM foreign_keys
            UNION SELECT view FROM origins UNION SELECT relation FROM origins)),
        'routines', (SELECT coalesce(json_agg(json_build_object('s', n.nspname, 'n', p.proname, 'v', p.provolatile, 'set', p.proretset,
            'rows', p.prorows,
            'kind', CASE WHEN t.oid = 'void'::regtype THEN 'void'
              WHEN b.typtype = 'c' OR p.proargmodes && '{t,b,o}'::"char"[] THEN 'composite' ELSE 'scalar' END,
            'rel', nullif(b.typrelid, 0)::int8,
            'media', CASE WHEN t.typtype = 'd' AND t.typname LIKE '%/%' THEN t.typname END,
            'names', p.proargnames, 'modes', p.proargmodes,
            'types', (SELECT coalesce(json_agg(format_type(type, NULL) ORDER BY at), '[]')
              FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, at)),
            'defaults', p.pronargdefaults,
            'of', CASE WHEN p.pronargs = 1 THEN (SELECT nullif(typrelid, 0)::int8 FROM pg_type WHERE oid = p.proargtypes[0]) END,
            'settings', p.proconfig) ORDER BY p.oid), '[]')
          FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_type AS t ON t.oid = p.prorettype
          JOIN pg_type AS b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
          WHERE ${exposed} AND p.prokind = 'f' AND t.oid <> 'trigger'::regtype AND t.oid <> 'event_trigger'::regtype),
        'handlers', (SELECT coalesce(json_agg(json_build_array(n.nspname, p.proname, lower(t.typname), nullif(a.typrelid, 0)::int8)), '[]')
          FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
          JOIN pg_type AS t ON t.oid = p.prorettype AND t.typtype = 'd' AND t.typname LIKE '%/%'
          JOIN pg_type AS a ON a.oid = p.proargtypes[0] AND (a.typrelid <> 0 OR a.oid = 'anyelement'::regtype)
          WHERE ${exposed} AND p.prokind = 'a' AND p.pronargs = 1),
        'casts', (SELECT coalesce(json_agg(json_build_array(format_type(c.castsource, NULL), format_type(c.casttarget, NULL), n.nspname, p.proname)), '[]')
          FROM pg_cast AS c JOIN pg_type AS s ON s.oid = c.castsource JOIN pg_type AS t ON t.oid = c.casttarget
          JOIN pg_proc AS p ON p.oid = c.castfunc JOIN pg_namespace AS n ON n.oid = p.pronamespace
          WHERE c.castcontext = 'i' AND c.castmethod = 'f' AND has_function_privilege(p.oid, 'EXECUTE')
            AND ((s.typtype = 'd' AND t.oid = 'json'::regtype) OR (t.typtype = 'd' AND s.oid IN ('json'::regtype, 'text'::regtype)))),
        'timezones', (SELECT coalesce(json_agg(name), '[]') FROM pg_timezone_names),
        'settings', (SELECT coalesce(json_object_agg(split_part(entry, '=', 1), substr(entry, strpos(entry, '=') + 1)
            ORDER BY s.setrole, s.setdatabase), '{}')
          FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS entry
          WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
            AND s.setrole IN (0, coalesce(to_regrole('authenticator'), 0)) AND entry LIKE 'pgrst.%'),
        'roleSettings', (SELECT coalesce(json_object_agg(rolname, settings), '{}') FROM (
          SELECT r.rolname, json_object_agg(g.name, substr(entry, strpos(entry, '=') + 1) ORDER BY s.setdatabase) AS settings
          FROM pg_db_role_setting AS s JOIN pg_roles AS r ON r.oid = s.setrole
          CROSS JOIN unnest(s.setconfig) AS entry
          JOIN pg_settings AS g ON lower(g.name) = lower(split_part(entry, '=', 1))
            AND (g.context = 'user' OR has_parameter_privilege(g.name, 'SET'))
          WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
          GROUP BY r.rolname) AS roles),
        'hasGeoJson', EXISTS (SELECT FROM pg_extension WHERE extname = 'postgis')
      )::text AS found`,
    params: [schemas],
  }
}

import type { Statement } from '../../../engine/engine.ts'
import { LINKS, type Links } from './links.ts'
import { SCHEMA_SIZE_MAX } from './types.ts'
import { VERSION } from './version.ts'

/** The result of `introspect`: one JSON text with short names and arrays, because a database may have thousands of tables. */
export interface Introspection extends Links {
  version: string
  tables: readonly {
    o: number
    s: string
    n: string
    k: 'r' | 'v' | 'm' | 'f' | 'p'
    /** Bits of the changes that the relation accepts: updates (4), inserts (8) and deletes (16). */
    w: number
    c: readonly (readonly [number: number, name: string, type: string, defaultSql: string | null])[]
  }[]
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

/** The result if it would be longer than `SCHEMA_SIZE_MAX`. */
export interface TooLargeIntrospection extends Pick<Introspection, 'version'> {
  tables: null
}

const exposed = 'n.nspname = ANY ($1::text[])'

/**
 * Runs with the search path `pg_catalog`, so that types and defaults are qualified. Extensions' functions are callable only if their
 * schema is exposed. Without a modifier (-1), `format_type` writes `bpchar` and `"bit"`, which mean any length: `character` and `bit` mean one.
 */
export function introspect(schemas: readonly string[]): Statement {
  return {
    text: `WITH ${LINKS.tables},
      relations AS MATERIALIZED (
        SELECT c.oid, n.nspname, c.relname, c.relkind, c.relnatts FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE ${exposed} AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND NOT c.relispartition
          AND NOT pg_is_other_temp_schema(n.oid)),
      columns AS MATERIALIZED (
        SELECT a.attrelid, json_agg(json_build_array(a.attnum, a.attname,
            format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attidentity <> '' THEN (SELECT format('nextval(%L)', s.objid::regclass) FROM pg_depend AS s
                WHERE s.classid = 'pg_class'::regclass AND s.refclassid = s.classid AND s.refobjid = a.attrelid
                  AND s.refobjsubid = a.attnum AND s.deptype = 'i')
              WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid),
                CASE WHEN t.typtype = 'd' THEN pg_get_expr(t.typdefaultbin, 0) END) END) ORDER BY a.attnum) AS list
        FROM relations AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_type AS t ON t.oid = a.atttypid
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        GROUP BY a.attrelid),
      found AS MATERIALIZED (SELECT json_build_object(
        'version', ${VERSION},
        'tables', (SELECT coalesce(json_agg(json_build_object('o', r.oid::int8, 's', r.nspname, 'n', r.relname, 'k', r.relkind,
            'w', CASE WHEN r.relkind IN ('r', 'p') THEN 28 WHEN r.relkind = 'm' THEN 0 ELSE pg_relation_is_updatable(r.oid, true) END,
            'c', coalesce(c.list, '[]'::json))), '[]') FROM relations AS r LEFT JOIN columns AS c ON c.attrelid = r.oid),
        ${LINKS.fields},
        'routines', (SELECT coalesce(json_agg(json_build_object('s', n.nspname, 'n', p.proname, 'v', p.provolatile, 'set', p.proretset,
            'rows', p.prorows,
            'kind', CASE WHEN t.oid = 'void'::regtype THEN 'void'
              WHEN b.typtype = 'c' OR p.proargmodes && '{t,b,o}'::"char"[] THEN 'composite' ELSE 'scalar' END,
            'rel', nullif(b.typrelid, 0)::int8,
            'media', CASE WHEN t.typtype = 'd' AND t.typname LIKE '%/%' THEN t.typname END,
            'names', p.proargnames, 'modes', p.proargmodes,
            'types', (SELECT coalesce(json_agg(format_type(type, -1) ORDER BY at), '[]')
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
      )::text AS found)
      SELECT CASE WHEN octet_length(found) <= ${SCHEMA_SIZE_MAX} THEN found
        ELSE json_build_object('version', ${VERSION}, 'tables', NULL)::text END AS found FROM found`,
    params: [schemas],
  }
}

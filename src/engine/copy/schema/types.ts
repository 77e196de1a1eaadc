import { collate, idOf, SCHEMAS, standsAlone } from './scope.ts'

const OWN = `t.typnamespace IN ${SCHEMAS} AND ${standsAlone('pg_type', 't.oid')}`
const NAME = 'format_type(t.oid, NULL)'

const LABELS = `(SELECT string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)`

const NOT_NULL = `coalesce(
  (SELECT format(' CONSTRAINT %I NOT NULL', conname) FROM pg_constraint WHERE contypid = t.oid AND contype = 'n'),
  CASE WHEN t.typnotnull THEN ' NOT NULL' END)`

const ATTRIBUTES = `(
  SELECT string_agg(format('%I %s%s', attname, format_type(atttypid, atttypmod), ${collate('attcollation', 'a.typcollation')}), ', ' ORDER BY attnum)
    FROM pg_attribute JOIN pg_type AS a ON a.oid = atttypid WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped)`

const RANGE = `(
  SELECT concat_ws(', ', 'SUBTYPE = ' || format_type(rngsubtype, NULL),
      'MULTIRANGE_TYPE_NAME = ' || format_type(rngmultitypid, NULL),
      CASE WHEN NOT opcdefault THEN format('SUBTYPE_OPCLASS = %I.%I', o.nspname, opcname) END,
      CASE WHEN rngcollation <> 0 THEN 'COLLATION = ' || rngcollation::regcollation END,
      CASE WHEN rngsubdiff <> 0 THEN format('SUBTYPE_DIFF = %I.%I', f.nspname, proname) END)
    FROM pg_range JOIN pg_opclass ON pg_opclass.oid = rngsubopc JOIN pg_namespace AS o ON o.oid = opcnamespace
    LEFT JOIN pg_proc ON pg_proc.oid = rngsubdiff LEFT JOIN pg_namespace AS f ON f.oid = pronamespace
   WHERE rngtypid = t.oid)`

/** Domains without their checks, which come after the data. */
export const types = `
  SELECT ${idOf('pg_type', 't.oid')} AS id, ARRAY[format('CREATE %s %s AS %s', CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, ${NAME},
      CASE t.typtype WHEN 'e' THEN format('ENUM (%s)', ${LABELS})
        WHEN 'd' THEN concat(format_type(t.typbasetype, t.typtypmod), ${collate('t.typcollation', 'b.typcollation')},
          ' DEFAULT ' || pg_get_expr(t.typdefaultbin, 0), ${NOT_NULL})
        WHEN 'r' THEN format('RANGE (%s)', ${RANGE})
        ELSE format('(%s)', ${ATTRIBUTES}) END)] AS statements
    FROM pg_type AS t LEFT JOIN pg_type AS b ON b.oid = t.typbasetype
   WHERE (t.typtype IN ('e', 'd', 'r') OR (t.typtype = 'c' AND (SELECT relkind FROM pg_class WHERE oid = t.typrelid) = 'c')) AND ${OWN}`

export const collations = `
  SELECT ${idOf('pg_collation', 'c.oid')} AS id, ARRAY[format('CREATE COLLATION %s (%s)', c.oid::regcollation, concat_ws(', ',
      'PROVIDER = ' || CASE collprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END,
      'LOCALE = ' || quote_literal(coalesce(to_jsonb(c) ->> 'colllocale', to_jsonb(c) ->> 'colliculocale')),
      'LC_COLLATE = ' || quote_literal(collcollate), 'LC_CTYPE = ' || quote_literal(collctype),
      CASE WHEN NOT collisdeterministic THEN 'DETERMINISTIC = false' END, 'RULES = ' || quote_literal(collicurules)))] AS statements
    FROM pg_collation AS c WHERE collnamespace IN ${SCHEMAS} AND ${standsAlone('pg_collation', 'c.oid')}`

const MAPPINGS = `(
  SELECT array_agg(format('ALTER TEXT SEARCH CONFIGURATION %s ADD MAPPING FOR %I WITH %s', c.oid::regconfig, alias, dictionaries))
    FROM (SELECT alias, string_agg(mapdict::regdictionary::text, ', ' ORDER BY mapseqno) AS dictionaries
            FROM pg_ts_config_map JOIN ts_token_type(c.cfgparser) ON tokid = maptokentype WHERE mapcfg = c.oid GROUP BY alias) AS m)`

export const textSearch = `
  SELECT ${idOf('pg_ts_dict', 't.oid')} AS id, ARRAY[format('CREATE TEXT SEARCH DICTIONARY %s (TEMPLATE = %I.%I%s)',
      t.oid::regdictionary, nspname, tmplname, ', ' || dictinitoption)] AS statements
    FROM pg_ts_dict AS t JOIN pg_ts_template ON pg_ts_template.oid = dicttemplate JOIN pg_namespace ON pg_namespace.oid = tmplnamespace
   WHERE dictnamespace IN ${SCHEMAS} AND ${standsAlone('pg_ts_dict', 't.oid')}
  UNION ALL
  SELECT ${idOf('pg_ts_config', 'c.oid')}, ARRAY[format('CREATE TEXT SEARCH CONFIGURATION %s (PARSER = %I.%I)',
      c.oid::regconfig, nspname, prsname)] || coalesce(${MAPPINGS}, '{}')
    FROM pg_ts_config AS c JOIN pg_ts_parser ON pg_ts_parser.oid = cfgparser JOIN pg_namespace ON pg_namespace.oid = prsnamespace
   WHERE cfgnamespace IN ${SCHEMAS} AND ${standsAlone('pg_ts_config', 'c.oid')}`

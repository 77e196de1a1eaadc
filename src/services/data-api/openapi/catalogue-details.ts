import { CATALOGUE, type Catalogue, WANTED } from './catalogue.ts'

/** The parts of the database from which the OpenAPI document of a schema is generated. */
export interface SchemaDescription {
  catalogue: Catalogue
  details: Details
}

/** Facts that the OpenAPI document of a schema needs and the catalogue lacks. */
export interface Details {
  comment: string | null
  relations: RelationDetails[]
  functions: RoutineDetails[]
}

interface RelationDetails {
  id: number
  /** False if privileges are followed and the current role has none. */
  usable: boolean
  comment: string | null
  isPartition: boolean
  /** In the order of the table. */
  columns: ColumnDetails[]
}

export interface ColumnDetails {
  name: string
  /** The type as Postgres formats it; for a domain, the base type. */
  format: string
  default: string | null
  comment: string | null
  lengthMax: number | null
}

interface RoutineDetails {
  id: number
  usable: boolean
  comment: string | null
  isVolatile: boolean
  /** The formatted types of the arguments, in order. */
  formats: string[]
}

/** Formats a type with its schema, even if the schema is on the session's search path. */
const formatOf = (type: string, modifier: string) => `(
  SELECT CASE WHEN own.typnamespace = 'pg_catalog'::regnamespace THEN format_type(own.oid, NULL)
      ELSE CASE WHEN pg_type_is_visible(named.oid) THEN quote_ident(nspname) || '.' ELSE '' END || format_type(own.oid, ${modifier}) END
    FROM pg_type AS own
    JOIN pg_type AS named ON named.oid = CASE WHEN own.typcategory = 'A' AND own.typelem <> 0 THEN own.typelem ELSE own.oid END
    JOIN pg_namespace ON pg_namespace.oid = named.typnamespace
   WHERE own.oid = ${type})`

const COLUMNS = `
  SELECT json_agg(json_build_object(
      'name', attname, 'comment', col_description(attrelid, attnum),
      'format', CASE WHEN coalesce(base_type.typnamespace, own_type.typnamespace) = 'pg_catalog'::regnamespace
        THEN format_type(coalesce(base, atttypid), NULL) ELSE ${formatOf('atttypid', 'atttypmod')} END,
      'default', CASE WHEN attgenerated <> '' THEN NULL WHEN adbin IS NULL THEN pg_get_expr(own_type.typdefaultbin, 0)
        ELSE pg_get_expr(adbin, adrelid) END,
      'lengthMax', CASE WHEN modifier < 0 THEN NULL
        WHEN coalesce(base, atttypid) IN ('varchar'::regtype, 'bpchar'::regtype) THEN modifier - 4
        WHEN coalesce(base, atttypid) IN ('bit'::regtype, 'varbit'::regtype) THEN modifier END) ORDER BY attnum)
    FROM pg_attribute
    JOIN pg_type AS own_type ON own_type.oid = atttypid
    LEFT JOIN bases ON domain = atttypid
    LEFT JOIN pg_type AS base_type ON base_type.oid = base
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum,
    LATERAL (SELECT CASE WHEN base IS NULL THEN atttypmod ELSE base_modifier END AS modifier) AS modifiers
   WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped`

/** Any privilege counts, also one on a single column, as in PostgREST. */
const RELATION_USABLE = `pg_has_role(relowner, 'USAGE')
  OR has_table_privilege(class.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
  OR has_any_column_privilege(class.oid, 'SELECT, INSERT, UPDATE, REFERENCES')`

const relations = (usable: string) => `
  SELECT json_agg(json_build_object(
      'id', class.oid::int8, 'usable', ${usable}, 'comment', obj_description(class.oid, 'pg_class'), 'isPartition', relispartition,
      'columns', coalesce((${COLUMNS}), '[]')))
    FROM pg_class AS class JOIN wanted ON wanted.oid = relnamespace
   WHERE relkind IN ('r', 'p', 'f', 'v', 'm')`

const functions = (usable: string) => `
  SELECT json_agg(json_build_object(
      'id', pg_proc.oid::int8, 'usable', ${usable}, 'comment', obj_description(pg_proc.oid, 'pg_proc'), 'isVolatile', provolatile = 'v',
      'formats', (SELECT coalesce(json_agg(${formatOf('type', 'NULL')} ORDER BY place), '[]')
        FROM unnest(coalesce(proallargtypes, proargtypes::oid[])) WITH ORDINALITY AS argument (type, place))))
    FROM pg_proc JOIN wanted ON wanted.oid = pronamespace
   WHERE prokind = 'f'`

interface Options {
  /** Whether relations and functions that the current role may not use are marked. */
  followsPrivileges: boolean
}

/** SQL of the `Details`. `bases` resolves chains of domains to their base types. */
const details = ({ followsPrivileges }: Options) => `
  WITH RECURSIVE domains (domain, base, base_modifier) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT domain, typbasetype, typtypmod FROM domains JOIN pg_type ON pg_type.oid = base WHERE typtype = 'd'),
  bases AS (SELECT domains.* FROM domains JOIN pg_type ON pg_type.oid = base WHERE typtype <> 'd'),
  ${WANTED}
  SELECT json_build_object(
    'comment', (SELECT obj_description(oid, 'pg_namespace') FROM wanted),
    'relations', coalesce((${relations(followsPrivileges ? RELATION_USABLE : 'true')}), '[]'),
    'functions', coalesce((${functions(followsPrivileges ? `has_function_privilege(pg_proc.oid, 'EXECUTE')` : 'true')}), '[]'))`

/** SQL that takes a list of one schema and returns one row, read in one snapshot. */
export const catalogueWithDetails = (options: Options): string =>
  `SELECT (${CATALOGUE}) AS catalogue, (${details(options)}) AS details`

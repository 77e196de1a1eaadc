import { LINKS, type Links } from '../schema/links.ts'

/** The catalogue of the requested schemas, and of every type that they may refer to. */
export interface Catalogue extends Links {
  schemas: string[]
  relations: Relation[]
  functions: Routine[]
  types: Type[]
}

export interface Relation {
  id: number
  schema: string
  name: string
  kind: 'r' | 'p' | 'f' | 'v' | 'm'
  insertable: boolean
  updatable: boolean
  columns: Column[]
}

export const isView = ({ kind }: Pick<Relation, 'kind'>): boolean => kind === 'v' || kind === 'm'

export interface Column {
  name: string
  type: number
  nullable: boolean
  hasDefault: boolean
  identity: '' | 'a' | 'd'
  generated: boolean
  writable: boolean
}

export interface Routine {
  id: number
  schema: string
  name: string
  /** The arguments as Postgres formats them, by which overloads are sorted. */
  signature: string
  returns: number
  returnsSet: boolean
  rows: number
  arguments: Argument[]
}

export interface Argument {
  name: string
  type: number
  /** in, out, inout (b), variadic, or a column of `returns table`. */
  mode: 'i' | 'o' | 'b' | 'v' | 't'
  hasDefault: boolean
}

export interface Type {
  id: number
  schema: string
  name: string
  /** The element type of an array. */
  element: number
  /** The base type of a domain. */
  base: number
  /** The relation of a row type; `kind` is the relation's kind. */
  relation: number
  kind: Relation['kind'] | 'c' | null
  values: string[] | null
  attributes: { name: string; type: number }[] | null
}

const SYSTEM_SCHEMA = `(nspname = 'information_schema' OR nspname LIKE 'pg\\_%')`

const COLUMNS = `
  SELECT json_agg(json_build_object(
      'name', attname, 'type', atttypid::int8, 'hasDefault', atthasdef AND attgenerated = '',
      'nullable', NOT attnotnull AND NOT (typtype = 'd' AND typnotnull),
      'identity', attidentity, 'generated', attgenerated <> '',
      'writable', relkind = 'v' AND (pg_column_is_updatable(class.oid, attnum, false) OR has_instead)))
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
   WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped`

const RELATIONS = `
  SELECT json_agg(json_build_object(
      'id', class.oid::int8, 'schema', nspname, 'name', relname, 'kind', relkind,
      'insertable', (events & 8) > 0, 'updatable', (events & 4) > 0,
      'columns', coalesce((${COLUMNS}), '[]')))
    FROM pg_class AS class JOIN wanted ON wanted.oid = relnamespace,
      LATERAL (SELECT CASE relkind WHEN 'v' THEN pg_relation_is_updatable(class.oid, true) ELSE 0 END AS events) AS updates,
      LATERAL (SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = class.oid AND tgtype & 64 > 0) AS has_instead) AS triggers
   WHERE relkind IN ('r', 'p', 'f', 'v', 'm')`

const ARGUMENTS = `
  SELECT json_agg(json_build_object(
      'name', coalesce(name, ''), 'type', type::int8, 'mode', mode,
      'hasDefault', mode IN ('i', 'b', 'v') AND input > pronargs - pronargdefaults) ORDER BY place)
    FROM (SELECT place, type, proargnames[place] AS name, coalesce(proargmodes[place], 'i') AS mode,
            count(*) FILTER (WHERE coalesce(proargmodes[place], 'i') IN ('i', 'b', 'v')) OVER (ORDER BY place) AS input
          FROM unnest(coalesce(proallargtypes, proargtypes::oid[])) WITH ORDINALITY AS argument (type, place)) AS arguments`

const FUNCTIONS = `
  SELECT json_agg(json_build_object(
      'id', pg_proc.oid::int8, 'schema', nspname, 'name', proname, 'signature', pg_get_function_arguments(pg_proc.oid),
      'returns', prorettype::int8, 'returnsSet', proretset, 'rows', prorows, 'arguments', coalesce((${ARGUMENTS}), '[]')))
    FROM pg_proc JOIN wanted ON wanted.oid = pronamespace
   WHERE prokind = 'f' AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)`

const TYPES = `
  SELECT json_agg(json_build_object(
      'id', pg_type.oid::int8, 'schema', nspname, 'name', typname,
      'element', CASE WHEN typcategory = 'A' THEN typelem::int8 ELSE 0 END, 'base', typbasetype::int8,
      'relation', typrelid::int8, 'kind', relkind,
      'values', (SELECT json_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = pg_type.oid),
      'attributes', CASE WHEN relkind = 'c' THEN coalesce((
        SELECT json_agg(json_build_object('name', attname, 'type', atttypid::int8) ORDER BY attnum)
          FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0 AND NOT attisdropped), '[]') END))
    FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace LEFT JOIN pg_class ON pg_class.oid = typrelid
   WHERE NOT ${SYSTEM_SCHEMA} OR (typtype <> 'c' AND typname !~ '^_pg_')`

/** The schemas named by the first parameter. */
export const WANTED = `wanted AS MATERIALIZED (
    SELECT oid, nspname FROM pg_namespace WHERE nspname = ANY ($1::text[]) AND NOT ${SYSTEM_SCHEMA})`

/** SQL that takes the names of the schemas and returns the catalogue in one row with one column. */
export const CATALOGUE = `
  WITH ${WANTED}, ${LINKS.tables}
  SELECT json_build_object(
    'schemas', coalesce((SELECT json_agg(nspname) FROM wanted), '[]'),
    'relations', coalesce((${RELATIONS}), '[]'),
    ${LINKS.fields},
    'functions', coalesce((${FUNCTIONS}), '[]'),
    'types', coalesce((${TYPES}), '[]')) AS catalogue`

export const SCHEMAS = `
  SELECT current_database() AS database, nspname AS schema FROM pg_namespace WHERE NOT ${SYSTEM_SCHEMA} ORDER BY nspname`
